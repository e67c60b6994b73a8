"""Conversion between a directory's generation_config.json and DecodingConfig."""

import sys
from collections.abc import Mapping
from typing import Any

from transformer_jax.config import DataConfig, DecodingConfig, Experiment
from transformer_jax.config.choices.searches import samples
from transformer_jax.config.registry import pick
from transformer_jax.data.codecs.codec import Codec, special_of
from transformer_jax.decoding.text.generate import MAX_TOKENS
from transformer_jax.decoding.text.prompts import forbidden

# Settings that change the text in Hugging Face and have no counterpart here, with neutral values.
_NEUTRAL: Mapping[str, tuple] = {
    "begin_suppress_tokens": ([],),
    "bad_words_ids": ([],),
    "constraints": ([],),
    "diversity_penalty": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": ([],),
    "forced_bos_token_id": (),
    "forced_decoder_ids": ([],),
    "guidance_scale": (1,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "num_beam_groups": (1,),
    "penalty_alpha": (0,),
    "sequence_bias": ([], {}),
    "stop_strings": ([], ""),
    "top_h": (0, 1),
    "typical_p": (1,),
}
_NOTHING: tuple = (False, 0, "", [], {})  # the neutral values of all others
# Settings that `read` or `ignored` takes.
_TAKEN = (
    "bos_token_id", "decoder_start_token_id", "do_sample", "early_stopping", "eos_token_id",
    "length_penalty", "max_length", "max_new_tokens", "no_repeat_ngram_size", "num_beams",
    "min_p", "pad_token_id", "repetition_penalty", "suppress_tokens", "temperature", "top_k",
    "top_p",
)  # fmt: skip
KEYS = {*_TAKEN, *_NEUTRAL}
# Settings that change only how fast a text is found, what is returned with it, or how a text ends
# that is cut at its greatest length.
_WITHOUT_EFFECT = (
    "_from_model_config", "assistant_confidence_threshold", "assistant_early_exit",
    "assistant_lookbehind", "cache_config", "cache_implementation", "compile_config",
    "disable_compile", "forced_eos_token_id", "is_assistant", "low_memory", "max_cache_len",
    "max_matching_ngram_size", "num_assistant_tokens", "num_assistant_tokens_schedule",
    "num_return_sequences", "output_attentions", "output_hidden_states", "output_logits",
    "output_scores", "prompt_lookup_num_tokens", "remove_invalid_values",
    "return_dict_in_generate", "target_lookbehind", "transformers_version", "use_cache",
)  # fmt: skip
_TOP_K = 50  # Hugging Face's default for sampling


def write(experiment: Experiment, codec: Codec) -> dict[str, Any]:
    """Return the content of generation_config.json; without it, only 20 pieces are generated."""
    decoding, limit = experiment.decoding, experiment.model.position_limit
    longest = MAX_TOKENS
    if experiment.objective.translates:
        source = experiment.data.max_length
        longest = int(decoding.max_length_ratio * source) + decoding.max_extra_length
    never = special_of(codec).unwritten | {*forbidden(codec, experiment.objective, decoding)}
    found: dict[str, Any] = {
        **special_words(codec),
        "no_repeat_ngram_size": decoding.no_repeat_ngram,
        "repetition_penalty": decoding.repetition_penalty,
        "suppress_tokens": sorted(never) or None,
    }
    if limit and experiment.model.architecture == "decoder":  # of a prompt and its text together
        found["max_length"] = limit
    else:
        found["max_new_tokens"] = min(longest, limit or longest)
    if experiment.model.architecture == "encoder_decoder":
        found["decoder_start_token_id"] = special_of(codec).begin
    return found | pick(_SEARCHES, decoding.search, "config.decoding.search")(decoding)


def _beam(decoding: DecodingConfig) -> dict[str, Any]:
    if decoding.greedy:
        return {"num_beams": 1}
    stops = {"length_penalty": decoding.alpha, "early_stopping": decoding.stop == "width"}
    return stops | {"num_beams": decoding.beam_size}


def _sample(decoding: DecodingConfig) -> dict[str, Any]:
    return {
        "do_sample": True, "temperature": decoding.temperature, "top_k": decoding.top_k,
        "top_p": decoding.top_p, "min_p": decoding.min_p or None,
    }  # fmt: skip


_SEARCHES = {"beam": _beam, "sample": _sample}  # those that `transformers` has


def special_words(codec: Codec) -> dict[str, Any]:
    """Return the ids of special pieces by their keys in config.json."""
    return {f"{name}_token_id": codec.special.get(name) for name in ("pad", "bos", "eos")}


def read(words: Mapping[str, Any], codec: Codec) -> DecodingConfig:
    """Return the search that a directory's configs ask for; see `ignored` for what is dropped.

    Raises:
      UserError: if there is no such search.
    """
    never = special_of(codec).unwritten
    suppressed = {*(words.get("suppress_tokens") or ())} & {*range(codec.size)} - never
    common: dict[str, Any] = {
        "length_penalty": "power",
        "alpha": _or(words.get("length_penalty"), 1.0),
        "stop": "width" if words.get("early_stopping") is True else "optimal",
        "no_repeat_ngram": words.get("no_repeat_ngram_size") or 0,
        "forbidden": tuple(codec.pieces(sorted(suppressed))),
    }
    if words.get("do_sample") or (words.get("num_beams") or 1) == 1:
        common["repetition_penalty"] = _or(words.get("repetition_penalty"), 1.0)
    if words.get("do_sample"):
        return DecodingConfig(
            **samples(1),
            temperature=_or(words.get("temperature"), 1.0),
            top_k=_or(words.get("top_k"), _TOP_K),
            top_p=_or(words.get("top_p"), 1.0),
            min_p=_or(words.get("min_p"), 0.0),
            **common,
        )
    return DecodingConfig(beam_size=words.get("num_beams") or 1, **common)


def ignored(words: Mapping[str, Any], encodes: bool, limit: int | None = None) -> list[str]:
    """Return a warning for each setting that may make generated text differ from Hugging Face's;
    `encodes`: prompts are read by an encoder; `limit`: number of positions.
    """
    found = [
        f"{name}={value!r}: not imported"
        for name, value in words.items()
        if name not in (*_TAKEN, *_WITHOUT_EFFECT)
        and value is not None and value not in _NEUTRAL.get(name, _NOTHING)
    ]  # fmt: skip
    name = "max_new_tokens" if words.get("max_new_tokens") else "max_length"
    ours = int(DecodingConfig.max_length_ratio * DataConfig.max_length)
    ours = min(ours + DecodingConfig.max_extra_length, limit or sys.maxsize)
    if encodes and (words.get(name) or ours) < ours:
        found.append(f"{name}={words[name]}: not imported; to end texts there, set "
                     "decoding.max_length_ratio=0 and decoding.max_extra_length")  # fmt: skip
    size, ends = words.get("no_repeat_ngram_size"), words.get("eos_token_id")
    if size and not encodes:
        found.append(f"no_repeat_ngram_size={size}: the n-grams of a prompt may be repeated here")
    penalty, beams = _or(words.get("repetition_penalty"), 1.0), words.get("num_beams") or 1
    if penalty != 1 and beams > 1 and not words.get("do_sample"):
        found.append(f"repetition_penalty={penalty}: not imported, beams compare the model's own "
                     "probabilities here")  # fmt: skip
    if isinstance(ends, list) and len(ends) > 1:
        found.append(f"eos_token_id={ends}: only the first of these ends a text here")
    if words.get("do_sample") and (words.get("num_beams") or 1) > 1:
        found.append(f"num_beams={words['num_beams']}: not imported, sampling has no beams here")
    return found


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value
