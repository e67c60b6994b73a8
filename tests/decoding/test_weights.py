"""What a search computes in: parameters cast once give the results of those cast at every use."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoding.test_generate import CODEC
from tiny import BASE, RECURRENT, UNPACKED, VARIANTS, VOCAB, random_params

from transformer_jax.base import processor
from transformer_jax.config import DecodingConfig
from transformer_jax.data.batches.batch import Side
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.decoding import weights
from transformer_jax.decoding.stepper import stepper_of
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.decoding.weights import computing_in, in_compute_dtype
from transformer_jax.models.build import build

MODELS = VARIANTS | RECURRENT | UNPACKED
SOME = BASE, "llama", "bare", "t5", "albert", "gnmt", "latent", "features", "states"
REST = [pytest.param(name, marks=pytest.mark.e2e) for name in MODELS if name not in SOME]


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", [*SOME, *REST])
def test_results_are_the_same_bit_for_bit(name):
    config = dataclasses.replace(MODELS[name], compute_dtype="bfloat16")
    model = build(config, VOCAB, VOCAB)
    params = random_params(model)
    held = in_compute_dtype(model, params)

    @jax.jit
    def run(params):
        stepper = stepper_of(model, params)
        ids = jnp.array([[5, 6, 7], [8, 9, 0]])
        side = Side(ids, jnp.array([[0, 1, 2], [0, 1, 0]]), jnp.array([[1, 1, 1], [1, 1, 0]]))

        def step(state, position):
            tokens = jnp.array([[[4], [11]], [[12], [13]]]) + position
            given = jnp.full((2, 1), position), jnp.ones(2, bool)
            logits, _, state = stepper.step(state, tokens, *given)
            return state, logits

        # In a loop, as searches run it: a step is compiled once.
        return jax.lax.scan(step, stepper.start(stepper.context(side), 2, 4), jnp.arange(2))[1]

    found, expected = run(held), run(params)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, expected)
    kinds = {x.dtype for x in jax.tree.leaves(held)}
    assert kinds == {jnp.dtype("bfloat16"), jnp.dtype("float32")}


def test_models_that_compute_in_float32_keep_their_parameters():
    model = build(MODELS[BASE], VOCAB, VOCAB)
    params = random_params(model)
    assert {x.dtype for x in jax.tree.leaves(in_compute_dtype(model, params))} == {
        jnp.dtype("float32")
    }


@pytest.fixture
def on(monkeypatch):
    """Return a function that makes this machine one whose processor has these flags."""

    def pretend(flags: str) -> None:
        lines = {"model name": "A processor", "flags": flags}
        monkeypatch.setattr(processor, "_line", lambda field: lines.get(field, ""))
        weights._automatic.cache_clear()

    yield pretend
    weights._automatic.cache_clear()


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [("sse avx2 avx512f avx512_vnni", "float32"), ("avx2 avx512f avx512_bf16", "bfloat16"),
     ("avx2 amx_bf16 amx_int8", "bfloat16"), ("", "float32")],
)  # fmt: skip
def test_a_cpu_takes_the_dtype_that_it_has_instructions_for(on, caplog, flags, dtype):
    on(flags)
    caplog.set_level("INFO", "transformer_jax")
    models = [build(MODELS[BASE], VOCAB, VOCAB), build(MODELS["llama"], VOCAB, VOCAB)]
    for _ in range(2):
        found = computing_in("auto", models)
        assert [model.config.compute_dtype for model in found] == [dtype] * 2
        assert [model.dtype for model in found] == [jnp.dtype(dtype)] * 2
    (said,) = caplog.messages  # once
    assert f"compute_dtype='auto': {dtype}, on A processor" in said
    assert computing_in("model", models) == models


def test_a_dtype_that_is_named_is_that_of_a_model_built_with_it(on):
    on("avx512_bf16")
    narrow = build(dataclasses.replace(MODELS[BASE], compute_dtype="bfloat16"), VOCAB, VOCAB)
    wide = build(MODELS[BASE], VOCAB, VOCAB)
    assert computing_in("float32", [narrow]) == [wide]
    assert computing_in("bfloat16", [wide]) == computing_in("auto", [wide]) == [narrow]
    codecs = TokenizerPair(CODEC, CODEC)
    translator = Translator(narrow, codecs, DecodingConfig(compute_dtype="float32"))
    assert translator.models == [wide]
