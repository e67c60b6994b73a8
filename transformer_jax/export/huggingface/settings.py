"""Export and import of settings beyond the model itself: objective, search, labels."""

from collections.abc import Callable, Mapping
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    DecodingConfig,
    EvaluationConfig,
    Experiment,
    ModelConfig,
    ObjectiveConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.config.choices import objectives as choices
from transformer_jax.config.choices.record import with_
from transformer_jax.data.codecs.classes import Classes
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.codecs.labels import Labels
from transformer_jax.data.codecs.spans import Spans
from transformer_jax.data.codecs.values import Values
from transformer_jax.data.objectives import objective_named
from transformer_jax.export.huggingface.family import Family

# What an imported encoder predicts -> its objective here.
ENCODERS = {
    ("tokens",): "masked_lm", ("tokens", "next_sentence"): "masked_lm_nsp", ("class",): "classify",
    ("tags",): "tag", ("span",): "answer", ("value",): "regress",
}  # fmt: skip
_LABELS = {("class",): Classes, ("tags",): Labels}
_OTHERS: Mapping[tuple[str, ...], Callable[[], Codec]] = {("span",): Spans, ("value",): Values.of}
_MOST_LABELS = 2**24
_ONE = "single_label_classification"
# Other objectives read text in another order, or predict what no class of `transformers` does.
OBJECTIVES = (
    "translate", "language_model", *with_(choices.OBJECTIVES, prompt="messages"),
    "span_corruption", "denoising", *ENCODERS.values(), "classify_pairs",
)  # fmt: skip


def refuse(experiment: Experiment) -> None:
    """Raise a UserError that names a setting that no directory can express, if any."""
    name = experiment.objective.name
    if experiment.objective.kind not in OBJECTIVES:
        raise UserError(
            f"config.objective.name={name!r}: the export to Hugging Face supports models of "
            f"{' or '.join(map(repr, OBJECTIVES))}"
        )
    for field in ("symbols", "model"):
        value = getattr(experiment.tokenizer, field)
        if value:
            raise UserError(
                f"config.tokenizer.{field}={value!r}: the export to Hugging Face supports only "
                "tokenizers trained here, without symbols"
            )
    if not experiment.tokenizer.joint and not experiment.objective.labels:
        raise UserError(
            "config.tokenizer.joint=False: the export to Hugging Face requires a joint vocabulary"
        )


def predicted(experiment: Experiment) -> tuple[str, ...]:
    """Return what a model predicts."""
    return objective_named(experiment.objective.name).predicts


def lacks(family: Family, experiment: Experiment) -> list[str]:
    """Return a warning for each setting that a directory cannot express, or not exactly."""
    model, decoding = experiment.model, experiment.decoding
    found = [
        f"model.{field}={getattr(model, field)!r}: {family.model_type!r} of Hugging Face always "
        f"uses {family.fixed[field]!r}; its logits differ by about that much"
        for field in family.nearly
        if getattr(model, field) != family.fixed[field]
    ]
    if family.caches_as_encoder and model.num_encoder_layers < model.num_decoder_layers:
        found.append(
            f"model.num_encoder_layers={model.num_encoder_layers}: with fewer layers than the "
            f"decoder, generate of transformers 5.23 fails for {family.model_type!r} unless "
            "use_cache=False"
        )
    beams = decoding.competes
    missing = (
        ("length_penalty", beams and decoding.alpha > 0 and decoding.length_penalty != "power",
         "only divides by length^alpha ('power')"),
        ("coverage_penalty", decoding.coverage_penalty > 0, "has none"),
        ("no_repeat_ngram", decoding.no_repeat_ngram > 0 and not family.encodes,
         "does not repeat the n-grams of a prompt, either"),
        ("min_length_ratio", decoding.min_length_ratio > 0, "accepts only numbers of pieces"),
        ("stop", beams and decoding.stop != "width",
         "stops at an estimate of what unfinished texts may still score, or at 'width'"),
        ("seed", decoding.draws, "draws other random numbers"),
        ("shortlist", decoding.shortlist > 0, "uses the whole vocabulary"),
        ("rerank", decoding.rerank != "none", "returns texts in the order of their scores"),
    )  # fmt: skip
    return found + [
        f"decoding.{name}={getattr(decoding, name)!r}: Hugging Face {what}"
        for name, differs, what in missing
        if differs
    ]


def label_words(predicts: tuple[str, ...], labels: Codec) -> dict[str, Any]:
    """Return the keys of config.json for classes of texts or of words, or for a number."""
    if predicts == ("value",):
        names = ["LABEL_0"]  # the default name in `transformers`
    elif predicts in _LABELS:
        names = labels.pieces(range(labels.size))
    else:
        return {}
    found: dict[str, Any] = {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }
    one = {"problem_type": _ONE}
    return found | (one if predicts == ("class",) else {})


def problem(words: Mapping[str, Any]) -> str:
    """Return the problem_type of config.json; if it has none, it follows from the number of labels,
    as in `transformers`.
    """
    return words.get("problem_type") or ("regression" if len(_names(words)) == 1 else _ONE)


def _names(words: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the names of labels by their numbers; if config.json has only how many there are, or
    not even that, they have the names that `transformers` gives them.
    """
    count = words.get("num_labels")
    count = 2 if count is None else count
    if type(count) is not int or not 0 < count < _MOST_LABELS:
        raise UserError(f"num_labels={count!r}: must be a number of labels")
    return words.get("id2label") or {str(number): f"LABEL_{number}" for number in range(count)}


def refuse_quantized(words: Mapping[str, Any]) -> None:
    """Raise a UserError that names how tensors are quantised, if they are."""
    for name in ("quantization_config", "compression_config"):
        how = words.get(name)
        if how:
            of = how if isinstance(how, dict) else {}
            bits = "bitsandbytes" if any(of.get(f"load_in_{n}bit") for n in (4, 8)) else how
            raise UserError(
                f"{name}: its tensors are quantised by {of.get('quant_method', bits)!r}, and only "
                "float32, float16 and bfloat16 can be imported; take the model before it was "
                "quantised"
            )


def labels(words: Mapping[str, Any], predicts: tuple[str, ...]) -> Codec | None:
    """Return the codec of the classes that config.json names, of answers, or of a number in its own
    unit; None: pieces.

    Raises:
      UserError: unless each text has exactly one of the classes.
    """
    if predicts not in _LABELS:
        return _OTHERS[predicts]() if predicts in _OTHERS else None
    kind = words.get("problem_type") or _ONE
    if kind != _ONE:
        raise UserError(f"config.json: problem_type={kind!r}: only one class per text is supported")
    names = _names(words)
    ordered = [names[number] for number in sorted(names, key=int)]
    if len(set(ordered)) < max(len(ordered), 2):
        raise UserError(f"config.json: id2label={names}: must name at least two distinct classes")
    return _LABELS[predicts].of(ordered)


def to_experiment(
    model: ModelConfig,
    decoding: DecodingConfig,
    predicts: tuple[str, ...] = ("tokens",),
    most: Any = None,
) -> Experiment:
    """Return the experiment of an imported model: its objective and codecs, with its own search.

    `most` is the length that its tokenizer cuts texts to, if any.
    """
    usual = DataConfig.max_length
    most = int(most) if isinstance(most, int | float) and 0 < most < 2**31 else None
    # An encoder's whole window; elsewhere this may be far more than a batch holds.
    longest = most if most and model.architecture == "encoder" else min(usual, most or usual)
    longest = min(longest, model.position_limit or longest)
    side = SourceConfig(codec="huggingface")
    tgt = SideConfig(codec="huggingface")
    common: dict[str, Any] = {"model": model, "tgt": tgt, "decoding": decoding,
                              "data": DataConfig(max_length=longest)}  # fmt: skip
    name: Any = ENCODERS[predicts] if model.architecture == "encoder" else "language_model"
    codec: Any = choices.OBJECTIVES[name].labels
    if codec is not None:
        apart = TokenizerConfig(joint=False)
        common |= {"src": side, "tgt": SideConfig(codec=codec), "tokenizer": apart}
    if model.architecture == "encoder_decoder":
        return Experiment(src=side, evaluation=EvaluationConfig(checkpoint="last"), **common)
    return Experiment(
        objective=ObjectiveConfig(name=name, window=longest),
        evaluation=EvaluationConfig(checkpoint="last", bleu_sentences=0),
        checkpoint=CheckpointConfig(best_by="loss"),
        **common,
    )
