"""Parameter counts: of the model, by formula, and in the paper's Table 3."""

import by_formula
import pytest
from tiny import VARIANTS

from transformer_jax.config import ModelConfig, ObjectiveConfig
from transformer_jax.training.cost import parameters


def base(**changes) -> ModelConfig:
    layers = changes.pop("layers", 6)
    return ModelConfig(num_encoder_layers=layers, num_decoder_layers=layers, **changes)


# Rows of Table 3 with our count at a vocabulary of 37,000 and the printed one, in millions. Rows
# (D) have the parameters of the base model.
TABLE_3 = {
    "base": (base(), 63.08, 65),
    "A 1 head": (base(num_heads=1), 63.08, 65),
    "A 4 heads": (base(num_heads=4), 63.08, 65),
    "A 16 heads": (base(num_heads=16), 63.08, 65),
    "A 32 heads": (base(num_heads=32), 63.08, 65),
    "B d_k 16": (base(head_dim=16, v_head_dim=64), 55.99, 58),
    "B d_k 32": (base(head_dim=32, v_head_dim=64), 58.35, 60),
    "C 2 layers": (base(layers=2), 33.66, 36),
    "C 4 layers": (base(layers=4), 48.37, 50),
    "C 8 layers": (base(layers=8), 77.80, 80),
    "C d_model 256": (base(d_model=256, head_dim=32), 26.83, 28),
    "C d_model 1024": (base(d_model=1024, head_dim=128), 163.89, 168),
    "C d_ff 1024": (base(d_ff=1024), 50.49, 53),
    "C d_ff 4096": (base(d_ff=4096), 88.27, 90),
    "E learned": (base(positions="learned"), 63.61, 65),
    "big": (base(d_model=1024, d_ff=4096, num_heads=16), 214.25, 213),
}


@pytest.mark.parametrize("row", TABLE_3)
def test_counts_of_table_3(row):
    """Our count is the model's, and within 8 % of the paper's, whose vocabulary is unknown."""
    config, ours, printed = TABLE_3[row]
    count = by_formula.parameters(config, 37_000, 37_000)
    assert round(count / 1e6, 2) == ours
    assert count / 1e6 == pytest.approx(printed, rel=0.08)
    if row == "B d_k 16":  # many layers, and separate sizes of keys and values
        assert parameters(config, (37_000, 37_000)) == count


ENCODERS = {
    "bert": ModelConfig(
        d_model=20, num_heads=4, architecture="encoder", num_encoder_layers=2, token_types=3,
        input_norm=True, positions="learned",
    ),
    "longformer": ModelConfig(
        d_model=20, num_heads=4, architecture="encoder", encoder_pattern=("longformer", "full"),
        window=5, num_kv_heads=2, v_head_dim=3, query_key_norm="per_head", num_encoder_layers=3,
        biases=("query", "output"),
    ),
    "latent": ModelConfig(
        d_model=20, num_heads=4, architecture="encoder", encoder_pattern=("latent",), latent_size=6,
        v_head_dim=3, num_encoder_layers=2, relative_positions="alibi",
    ),
    "encoder": ModelConfig(
        d_model=20, num_heads=4, architecture="encoder", residual="pre_norm", norm="rms_norm",
        tied_embeddings="none", relative_positions="t5", activation="swiglu", lora_rank=2,
        lora_maps=("gate", "embedding"),
    ),
}  # fmt: skip
GRID = {
    **VARIANTS,
    "uneven": ModelConfig(
        d_model=20, num_heads=4, num_encoder_layers=3, num_decoder_layers=1,
        relative_positions="t5",
    ),
    "heads": ModelConfig(d_model=20, num_heads=3, head_dim=7, v_head_dim=5, d_ff=11),
    "two_stream": ModelConfig(d_model=20, num_heads=4, architecture="two_stream"),
    **{
        f"lora_{tied}": ModelConfig(
            d_model=20, num_heads=4, lora_rank=3, lora_maps=("query", "embedding"),
            tied_embeddings=tied,
        )
        for tied in ("all", "decoder", "none")
    },
    "lora_llama": ModelConfig(
        d_model=20, num_heads=4, architecture="decoder", lora_rank=3, tied_embeddings="none",
        lora_maps=("output", "embedding"),
    ),
    **ENCODERS,
}  # fmt: skip

ENDS_IN_NORM = "pre_norm", "sandwich", "reordered_norm", "reversible"


def wrong(formula) -> list[str]:
    """Return the models whose parameters a formula miscounts.

    With two vocabularies, unless all tables are tied.
    """
    found = []
    for name, config in GRID.items():
        one = config.tied_embeddings == "all" or name in ENCODERS
        sizes = (30, 30) if one else (30, 41)
        if formula(config, *sizes) != parameters(config, sizes):
            found.append(name)
    return found


@pytest.mark.thorough
def test_the_formula_equals_the_models_count():
    """For every form of the model that the tables allow."""
    assert wrong(by_formula.parameters) == []


@pytest.mark.thorough
def test_the_formula_counts_the_heads_of_each_objective():
    for config in ENCODERS.values():
        for objective, sizes in (
            ("classify", (30, 3)), ("tag", (30, 3)), ("masked_lm_nsp", (30, 30)),
            ("regress", (30, 1)),
            ("answer", (30, 2)), ("policy", (30, 1968)),
        ):  # fmt: skip
            expected = by_formula.parameters(config, *sizes, objective)
            assert parameters(config, sizes, ObjectiveConfig(objective, window=80)) == expected
    for config in (VARIANTS["decoder"], VARIANTS["llama"]):
        for objective in ("classify", "regress"):
            expected = by_formula.parameters(config, 30, 3, objective)
            assert parameters(config, (30, 3), ObjectiveConfig(objective)) == expected


@pytest.mark.thorough
def test_a_formula_that_omits_a_term_is_detected():
    def without_final_norm(config, *sizes):
        pre = config.residual in ENDS_IN_NORM
        return by_formula.parameters(config, *sizes) - 4 * config.d_model * pre

    def without_a_bias(config, *sizes):
        return by_formula.parameters(config, *sizes) - config.num_decoder_layers * config.d_model

    pre_norm = [name for name, config in GRID.items() if config.residual in ENDS_IN_NORM]
    assert "llama" in pre_norm
    assert wrong(without_final_norm) == pre_norm
    assert wrong(without_a_bias) == list(GRID)
