"""Which models can be exported to CTranslate2: those on the list, each entry of which
tests/oracle/test_ctranslate2.py compares with the engine.
"""

import dataclasses
import typing

import pytest
from declared import choices, later, unworded, with_value
from tiny import MODEL

from transformer_jax.base.errors import UserError
from transformer_jax.config import ModelConfig, ObjectiveConfig
from transformer_jax.config.allowed import ANY
from transformer_jax.config.choices.objectives import OBJECTIVES
from transformer_jax.data.codecs.pair import CODECS
from transformer_jax.export.ctranslate2 import settings

# With absolute and relative positions both "none", either can be varied.
PLAIN = {
    "encoder_decoder": dataclasses.replace(MODEL, positions="none"),
    "decoder": dataclasses.replace(
        MODEL, architecture="decoder", num_encoder_layers=6, positions="none"
    ),
}


def test_every_word_is_declared():
    assert unworded(settings.SUPPORTED, ModelConfig) == []


@pytest.mark.parametrize("architecture", PLAIN)
@pytest.mark.parametrize("field", choices(ModelConfig))
def test_unsupported_values_are_rejected(field, architecture):
    """Every choice of every field, and choices that do not exist yet."""
    default = (getattr(ModelConfig(), field),)
    allowed = settings.supported(architecture).get(field, default)
    for value in (*choices(ModelConfig)[field], "not there yet", ("not", "there")):
        config = with_value(PLAIN[architecture], field, value)
        if field == "architecture":
            allowed = settings.SUPPORTED[field]
        if allowed is not ANY and value not in allowed:
            with pytest.raises(UserError, match=rf"^config\.model\.{field}=.*it supports {field}="):
                settings.refuse(config)
        elif allowed is not ANY:
            settings.refuse(config)


def test_incompatible_sizes_and_position_schemes_are_rejected():
    """A value head of a different size, and absolute positions together with relative ones."""
    for changes, printed in (
        ({"v_head_dim": 5}, r"v_head_dim=5: .* \(6\)"),
        ({"positions": "sinusoidal", "relative_positions": "rope"},
         r"positions='sinusoidal': .* with relative_positions='rope'"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=rf"^config\.model\.{printed}"):
            settings.refuse(dataclasses.replace(PLAIN["decoder"], **changes))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_whose_models_decode_differently_are_rejected(name):
    """For example, a prefix attends in both directions."""
    if name in ("translate", "language_model"):
        return settings.refuse_objective(ObjectiveConfig(name))
    with pytest.raises(UserError, match=rf"^config\.objective\.name='{name}': "):
        settings.refuse_objective(ObjectiveConfig(name))


@pytest.mark.parametrize("name", CODECS)
def test_codecs_without_a_sentencepiece_model_are_rejected(name):
    """source.spm and target.spm would hold something else."""
    if name == "subwords":
        return settings.refuse_codecs((name, name))
    for side, codecs in (("src", (name, "subwords")), ("tgt", ("subwords", name))):
        with pytest.raises(UserError, match=rf"^config\.{side}\.codec='{name}': .* requires code"):
            settings.refuse_codecs(codecs)


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
def test_a_new_field_is_rejected_until_it_is_declared(hint, default, value):
    """Its default changes nothing, and is exported."""
    kind = later(ModelConfig, "new", hint, default)
    values = dataclasses.asdict(PLAIN["encoder_decoder"])
    settings.refuse(kind(**values))
    with pytest.raises(UserError, match=r"^config\.model\.new="):
        settings.refuse(kind(**values, new=value))


def test_fields_with_choices_must_list_them():
    """ANY would admit choices that do not exist yet."""
    allowed = {**settings.SUPPORTED, "norm": ANY}
    assert unworded(allowed, ModelConfig) == ["norm"]
