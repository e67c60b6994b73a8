"""Which models are exported: those on the list, each as what it is, and no other."""

import dataclasses
import sys
import tempfile
import types
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from declared import choices, later, undeclared, with_value
from export import engine
from tiny import MODEL, VOCAB, alone, logits_of, random_params, random_store

from transformer_jax.allowed import ANY
from transformer_jax.config import ModelConfig
from transformer_jax.data.codecs.pair import CODECS
from transformer_jax.errors import UserError
from transformer_jax.export import ctranslate2
from transformer_jax.models.build import build

# Numbers that are nobody's defaults, and an epsilon that matters.
PLAIN = dataclasses.replace(
    MODEL, d_model=24, d_ff=40, num_heads=3, head_dim=8, v_head_dim=8, num_decoder_layers=2,
    norm_epsilon=0.1, dropout_rate=0.0,
)  # fmt: skip


def test_every_field_is_declared():
    assert undeclared(ctranslate2.SUPPORTED, ModelConfig) == []


@pytest.mark.parametrize("field", choices(ModelConfig))
def test_what_is_not_on_the_list_is_refused(field):
    """Each word of each field, and words that are not there yet."""
    allowed = ctranslate2.SUPPORTED[field]
    for value in (*choices(ModelConfig)[field], "not there yet", ("not", "there")):
        config = with_value(PLAIN, field, value)
        if allowed is not ANY and value not in allowed:
            with pytest.raises(UserError, match=rf"^config\.model\.{field}=.*it writes {field}="):
                ctranslate2.refuse(config)
        elif allowed is not ANY:
            ctranslate2.refuse(config)


@pytest.mark.parametrize("name", CODECS)
def test_codecs_without_a_sentencepiece_model_are_refused(name):
    """source.spm and target.spm would hold something else."""
    if name == "subwords":
        return ctranslate2.refuse_codecs((name, name))
    for side, codecs in (("src", (name, "subwords")), ("tgt", ("subwords", name))):
        with pytest.raises(UserError, match=rf"^config\.{side}\.codec='{name}': .* takes codec="):
            ctranslate2.refuse_codecs(codecs)


@pytest.mark.parametrize(
    ("hint", "default", "value"),
    [
        (typing.Literal["none", "rope"], "none", "rope"),
        (int | None, None, 1),
        (tuple[typing.Literal["full", "local"], ...], ("full",), ("full", "local")),
        (bool, False, True),
    ],
    ids=str,
)
def test_a_new_field_is_refused_until_it_is_declared(hint, default, value):
    """Its default changes nothing, and is exported."""
    kind = later(ModelConfig, "new", hint, default)
    assert undeclared(ctranslate2.SUPPORTED, kind) == ["new"]
    values = dataclasses.asdict(PLAIN)
    ctranslate2.refuse(kind(**values))
    with pytest.raises(UserError, match=r"^config\.model\.new="):
        ctranslate2.refuse(kind(**values, new=value))


def test_a_choice_of_words_lists_them():
    """ANY would take in words that are not there yet."""
    allowed = {**ctranslate2.SUPPORTED, "norm": ANY}
    assert undeclared(allowed, ModelConfig) == ["norm=ANY"]


def written_otherwise(allowed, monkeypatch) -> list[str]:
    """Return the entries of a list whose models are not what the engine makes of their export."""
    entries = [(field, value) for field, words in allowed.items() if words is not ANY
               for value in words]  # fmt: skip
    known: dict[ModelConfig, bool] = {}
    found = []
    for field, value in entries:
        # How the layers run is not exported, and makes no other model (tests/models/test_stack.py).
        config = dataclasses.replace(
            with_value(PLAIN, field, value), layer_loop="unrolled", remat="none"
        )
        if config not in known:
            known[config] = _is_read_as_it_is(config, monkeypatch)
        if not known[config]:
            found.append(f"{field}={value}")
    return found


def _is_read_as_it_is(config, monkeypatch) -> bool:
    model = build(config, VOCAB, VOCAB, "float32")
    batch = alone(random_store([(7, 7)]), 1, 7, 7)  # few shapes
    try:
        params = random_params(model)
        spec = _exported(config, params, monkeypatch)
        found = engine.logits(spec, batch.src.inputs, batch.tgt.inputs)
    except (KeyError, TypeError, ValueError):  # a parameter that only one of them knows
        return False
    return np.allclose(found, logits_of(model, params, batch), rtol=1e-4, atol=1e-4)


def _exported(config, params, monkeypatch) -> engine.TransformerSpec:
    monkeypatch.setitem(sys.modules, "ctranslate2", types.ModuleType("ctranslate2"))
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", engine)
    monkeypatch.setattr(ctranslate2, "_vocabularies", lambda *_: None)
    monkeypatch.setattr(ctranslate2, "SUPPORTED", dict.fromkeys(ctranslate2.SUPPORTED, ANY))
    tokenizers: Any = (types.SimpleNamespace(model=b""),) * 2
    with tempfile.TemporaryDirectory() as directory:
        ctranslate2.export(config, params, tokenizers, Path(directory, "new"), "float32")
    return engine.TransformerSpec.written


def test_each_entry_is_written_as_what_it_is(monkeypatch):
    assert written_otherwise(ctranslate2.SUPPORTED, monkeypatch) == []


def test_an_entry_that_is_wrong_is_noticed(monkeypatch):
    """Words that the model knows and the exporter does not write."""
    allowed = {"activation": ("relu", "gelu"), "norm": ("rms_norm",), "num_kv_heads": (None, 1)}
    wrong = ["activation=gelu", "norm=rms_norm", "num_kv_heads=1"]
    assert written_otherwise(allowed, monkeypatch) == wrong
