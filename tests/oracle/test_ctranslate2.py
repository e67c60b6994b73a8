"""CTranslate2 scores and searches with exported models as we do, for every supported value."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tiny import logits_of, random_params

from transformer_jax.base.vocabulary import BOS, EOS
from transformer_jax.config import ModelConfig
from transformer_jax.config.allowed import ANY
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.data.codecs.codec import SPELLED
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.export.ctranslate2 import directory, settings
from transformer_jax.models.build import build
from transformer_jax.nn.feedforward import ACTIVATIONS

pytestmark = pytest.mark.oracle

VOCAB, LENGTH = 30, 12
PROMPT = range(3)  # positions of each text that are given
# All sizes differ, and the number of heads is no power of two.
BOTH = ModelConfig(
    d_model=24, d_ff=40, num_heads=3, head_dim=6, num_encoder_layers=1, num_decoder_layers=2,
    dropout_rate=0.0, norm_epsilon=1e-3, max_positions=64,
)  # fmt: skip
MODELS = {
    "encoder_decoder": BOTH,
    "decoder": dataclasses.replace(BOTH, architecture="decoder", num_encoder_layers=6),
}
# Tables so small that distances are clipped and share buckets.
SMALL = {
    "t5": {"relative_buckets": 8, "relative_max_distance": 9},
    "shaw": {"relative_clip": 3},
    "shaw_values": {"relative_clip": 3},
    "rope": {"rope_fraction": 0.7, "rope_theta": 50.0},
}
NUMBERS = {
    "num_kv_heads": (1, 3), "head_dim": (8,), "norm_epsilon": (0.1,),
    "attention_temperature": (2.0,), "max_positions": (32,), "d_ff": (24,),
}  # fmt: skip
TOGETHER = {
    "Llama": {
        "norm": "rms_norm", "activation": "swiglu", "residual": "pre_norm", "biases": (),
        "positions": "none", "relative_positions": "rope", "num_kv_heads": 1,
        "tied_embeddings": "none", "embedding_scale": False,
    },
    "T5 1.1": {
        "norm": "rms_norm", "activation": "geglu_tanh", "residual": "pre_norm", "biases": (),
        "positions": "none", "relative_positions": "t5", **SMALL["t5"], "score_scale": "none",
        "embedding_scale": False, "logits_scale": True,
    },
    "MPT, colder": {
        "norm": "layer_norm_no_bias", "activation": "gelu", "residual": "pre_norm", "biases": (),
        "positions": "none", "relative_positions": "alibi", "attention_temperature": 2.0,
        "logits_bias": True,
    },
    "Shaw's, of all layers": {
        "positions": "none", "relative_positions": "shaw", **SMALL["shaw"],
        "share_relative_positions": True, "input_norm": True, "layer_sharing": "all",
    },
}  # fmt: skip


class Pieces:
    """The part of a codec that an export needs."""

    size, model = VOCAB, b""

    def pieces(self, ids) -> list[str]:
        return [SPELLED[i] if i < len(SPELLED) else f"piece{i}" for i in ids]


PIECES: Any = Pieces()


def changed(base: ModelConfig, field: str, value: Any) -> ModelConfig:
    """Return a model with one value changed, and with the values that it requires."""
    changes = {field: (value,) if field == "biases" and isinstance(value, str) else value}
    if field == "relative_positions" and value != "none":
        changes |= {"positions": "none", **SMALL.get(value, {})}
    if field == "share_relative_positions" and value is not None:
        changes |= {"positions": "none", "relative_positions": "t5", **SMALL["t5"]}
    if field == "activation" and ACTIVATIONS[value].gated:
        changes["d_ff"] = 16
    return dataclasses.replace(base, **changes)


def entries(architecture: str) -> dict[str, list[Any]]:
    """Return the supported values of each field with a choice, and some numbers.

    The way layers run is not exported, and leaves the model the same (tests/models/test_stack.py);
    nor is the initialisation.
    """
    unseen = (
        "architecture", "attention", "compute_dtype", "initializer", "layer_loop", "remat",
    )  # fmt: skip
    found = {
        field: list(NUMBERS.get(field, ()) if words is ANY else words)
        for field, words in settings.supported(architecture).items()
    }
    chosen = {
        field: values for field, values in found.items() if len(values) > 1 or field in NUMBERS
    }
    return {field: values for field, values in chosen.items() if field not in unseen}


def engine_agrees(config: ModelConfig) -> bool:
    """Return whether the engine gives each piece our log-probability, and generates the pieces
    that are most probable by our model.
    """
    model = build(config, VOCAB, VOCAB, "float32")
    params, random = random_params(model), np.random.default_rng(0)
    src = np.append(random.integers(4, VOCAB, 6), EOS).astype(np.int32)
    tgt = np.append(BOS, random.integers(4, VOCAB, LENGTH - 1)).astype(np.int32)
    two_sided = config.architecture == "encoder_decoder"

    def ours(ids: np.ndarray) -> np.ndarray:
        """Return the log-probabilities after each piece of a text, [LENGTH VOCAB]."""
        sides = [Side(x[None], np.arange(len(x))[None], np.ones((1, len(x)), np.int32))
                 for x in (src, ids)]  # fmt: skip
        batch = Batch(sides[0] if two_sided else None, sides[1], {})
        return np.asarray(jax.nn.log_softmax(logits_of(model, params, batch)))[0]

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "new")
        directory.export(config, params, TokenizerPair(PIECES, PIECES), place, "float32")
        scored, found = (_translator if two_sided else _generator)(str(place), src, tgt)
    wanted = ours(tgt)[np.arange(LENGTH - 1), tgt[1:]]
    ids = [int(piece.removeprefix("piece")) if piece[0] == "p" else SPELLED.index(piece)
           for piece in found]  # fmt: skip
    ended = ids if len(ids) == LENGTH else [*ids, EOS]
    best = ours(np.pad(ended, (0, LENGTH - len(ended))).astype(np.int32)).argmax(-1)
    begun = ended[: len(PROMPT)] == [tgt[i] for i in PROMPT]
    follows = ended[len(PROMPT) :] == best[len(PROMPT) - 1 : len(ended) - 1].tolist()
    return np.allclose(scored, wanted, atol=1e-4) and begun and follows


def _translator(place: str, src: np.ndarray, tgt: np.ndarray) -> tuple[np.ndarray, list[str]]:
    import ctranslate2 as engine

    translator = engine.Translator(place)
    source, target = [PIECES.pieces(src)], PIECES.pieces(tgt)
    (scored,) = translator.score_batch(source, [target[1:]])
    prompt = target[1 : len(PROMPT)]
    (found,) = translator.translate_batch(
        source, target_prefix=[prompt], beam_size=1, max_decoding_length=LENGTH - 1
    )
    return np.array(scored.log_probs[: LENGTH - 1]), [target[0], *found.hypotheses[0]]


def _generator(place: str, _: np.ndarray, tgt: np.ndarray) -> tuple[np.ndarray, list[str]]:
    import ctranslate2 as engine

    generator, target = engine.Generator(place), PIECES.pieces(tgt)
    scored = np.array(generator.forward_batch([target], return_log_probs=True))[0]
    (found,) = generator.generate_batch([target[: len(PROMPT)]], max_length=LENGTH - 1)
    return scored[np.arange(LENGTH - 1), tgt[1:]], [target[0], *found.sequences[0]]


@pytest.mark.parametrize(
    ("architecture", "field"), [(name, field) for name in MODELS for field in entries(name)]
)
def test_each_supported_value_is_exported_correctly(architecture, field):
    for value in entries(architecture)[field]:
        assert engine_agrees(changed(MODELS[architecture], field, value)), value


@pytest.mark.parametrize("name", TOGETHER)
def test_supported_values_can_be_combined(name):
    for architecture, base in MODELS.items():
        config = dataclasses.replace(base, **TOGETHER[name])
        if architecture == "decoder" or config.relative_positions != "alibi":
            assert engine_agrees(config), architecture


@pytest.mark.parametrize(
    ("architecture", "field", "value"),
    [
        ("encoder_decoder", "query_key_norm", "per_head"),
        ("encoder_decoder", "relative_positions", "alibi"),
        ("decoder", "residual", "reordered_norm"),
        ("decoder", "norm", "scale_norm"),
    ],
)
def test_unsupported_values_give_different_results(architecture, field, value, monkeypatch):
    """They are exported here as if they were supported."""
    monkeypatch.setattr(settings, "refuse", lambda _: None)
    assert not engine_agrees(changed(MODELS[architecture], field, value))
