"""muP and CompleteP: at the base's size nothing changes; beyond it, what a step changes stays."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import VOCAB, alone, for_model, random_store

from transformer_jax.config import ModelConfig, OptimizerConfig, TrainingConfig
from transformer_jax.models import core
from transformer_jax.models.build import abstract_params, build, init_params, roles_of, widths_of
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.step import batch_sums

BASE, HEAD, RATE, STEPS = 32, 8, 1e-2, 4
SMALL = ModelConfig(
    architecture="decoder", d_model=BASE, d_ff=2 * BASE, num_heads=BASE // HEAD,
    num_decoder_layers=2, residual="pre_norm", dropout_rate=0.0,
)  # fmt: skip
BATCH = alone(random_store([(6, 7)] * 16), 16, 8, 8)
# What initial values, tables and stacks can be.
FORMS = {
    "tied": {},
    "untied": {"tied_embeddings": "none", "initializer": "t5", "norm": "rms_norm"},
    "unscaled": {"embedding_scale": False, "logits_scale": True, "positions": "learned"},
    "gpt2": {"embedding_scale": False, "initializer": "gpt2", "num_kv_heads": 1},
    "experts": {"feed_forward_pattern": ("dense", "experts"), "num_experts": 3},
    "translator": {
        "architecture": "encoder_decoder", "num_encoder_layers": 2, "residual": "post_norm",
    },
}  # fmt: skip


def sized(config: ModelConfig, width: int, depth: int = 2, **changes) -> ModelConfig:
    """Return a model of this size, with heads of the same size and all else in proportion."""
    grown = {"d_model": width, "d_ff": 2 * width, "num_heads": width // HEAD}
    if "decoder" in config.stacks:
        grown["num_decoder_layers"] = depth
    return dataclasses.replace(config, **grown, **changes)


def mup(config: ModelConfig, word: str = "mup") -> ModelConfig:
    depth = {"base_depth": 2} if word == "completep" else {}
    return dataclasses.replace(config, parametrization=word, base_width=BASE, **depth)


def start(config: ModelConfig):
    model = build(config, VOCAB, VOCAB)
    key = jax.random.key(0)
    return model, nn.unbox(jax.jit(lambda key: init_params(model, key))(key))


def changes(config: ModelConfig) -> dict[str, float]:
    """Return the root mean square of logits, and of their change in a few steps of Adam."""
    model, params = start(config)
    batch = jax.device_put(for_model(config, BATCH))
    tx = make_optimizer(OptimizerConfig(), lambda _: RATE, roles_of(model), None, widths_of(model))

    def loss(params):
        sums = batch_sums(model, TrainingConfig(), params, batch, None)
        return sums.loss / sums.tokens

    @jax.jit
    def trained(params):
        def step(carry, _):
            params, state = carry
            updates, state = tx.update(jax.grad(loss)(params), state, params)
            return (jax.tree.map(jnp.add, params, updates), state), None

        first = model.outputs(params, batch, None)["tokens"].logits()
        (params, _), _ = jax.lax.scan(step, (params, tx.init(params)), length=STEPS)
        last = model.outputs(params, batch, None)["tokens"].logits()
        return [jnp.sqrt(jnp.square(x).mean()) for x in (first, last - first)]

    first, change = map(float, trained(params))
    return {"first": first, "change": change}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("form", FORMS)
def test_a_model_of_the_base_s_size_is_the_same_to_the_bit(form):
    config = dataclasses.replace(SMALL, **FORMS[form])
    expected = start(config)[1]
    for word in ("mup", *("completep",) * (config.residual == "pre_norm")):
        model, params = start(mup(config, word))
        jax.tree.map(np.testing.assert_array_equal, params, expected)
        assert widths_of(model) is None
        assert core.logits_factor(model.config) == 1


@pytest.mark.parametrize("form", FORMS)
def test_initial_values_and_rates_by_role(form):
    """Beside the base's: the table of the module's docstring, with n = 4."""
    config = dataclasses.replace(SMALL, **FORMS[form])
    wide = mup(sized(config, 4 * BASE))
    base, grown = (start(x)[1] for x in (config, wide))
    rates = widths_of(build(wide, VOCAB, VOCAB)).rates
    roles = roles_of(build(wide, VOCAB, VOCAB))
    flat = [dict(jax.tree_util.tree_leaves_with_path(tree)) for tree in (base, grown)]
    seen = set()
    for (path, one), other in zip(flat[0].items(), flat[1].values(), strict=True):
        name = "/".join(key.key for key in path)
        role, size = roles[name], float(jnp.std(other) / jnp.maximum(jnp.std(one), 1e-9))
        kind = "map" if role.is_map else role.part if role.kind == "table" else "plain"
        expected, rate = {
            "map": (0.5, 0.25), "logits": (0.25, 0.25), "positions": (1, 1), "plain": (None, 1),
            "embedding": (0.5, 0.5) if config.embedding_scale else (1, 1),
        }[kind]  # fmt: skip
        assert rates[name] == rate, name
        if expected is not None:
            assert size == pytest.approx(expected, rel=0.2), name
        seen.add(kind)
    assert {"map", "embedding", "plain"} <= seen


@pytest.mark.one_in(3, 1)
@pytest.mark.parametrize("form", FORMS)
def test_steps_change_wide_models_as_they_do_the_base(form):
    """Logits of four times the width change as much in a few steps; with the usual
    parametrization, more.
    """
    config = dataclasses.replace(SMALL, **FORMS[form])
    base, wide, usual = map(
        changes, (config, mup(sized(config, 4 * BASE)), sized(config, 4 * BASE))
    )
    assert 0.5 < wide["change"] / base["change"] < 1.3
    assert usual["change"] > 1.3 * wide["change"]
    assert wide["first"] < 1.2 * base["first"]


def test_depth_divides_what_layers_add():
    """CompleteP: of a model four times as deep, each layer adds a quarter; rates stay."""
    deep = mup(sized(SMALL, BASE, depth=8), "completep")
    assert (deep.widths, deep.depths) == (1, 4)
    widths = widths_of(build(deep, VOCAB, VOCAB))
    assert ({*widths.rates.values()}, widths.gradients) == ({1.0}, 4.0)
    scanned = dataclasses.replace(deep, layer_loop="scan")  # compiled once, not eight times
    base, right = changes(SMALL)["change"], changes(scanned)["change"]
    assert 0.6 < right / base < 1.4
    assert mup(SMALL, "completep").depths == 1
    assert {*abstract_params(build(deep, VOCAB, VOCAB))} == {"decoder", "embedding"}
