"""Initial values of parameters: standard deviations as published, and DeepNorm's factors."""

import dataclasses
import typing

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict
from tiny import MODEL, VOCAB

from transformer_jax.base.errors import UserError
from transformer_jax.config import MixerKind, ModelConfig
from transformer_jax.config.choices.mixers import MIXERS, WITHIN
from transformer_jax.models.build import abstract_params, build, init_params, roles_of
from transformer_jax.models.initial_values import INITIALIZERS, restarted
from transformer_jax.nn.residual import deep_norm

# No two sizes are equal.
BASE = ModelConfig(
    d_model=48, d_ff=80, num_heads=4, head_dim=25, v_head_dim=36, num_encoder_layers=2,
    num_decoder_layers=3, tied_embeddings="none", positions="learned", activation="swiglu",
)  # fmt: skip
KEY = jax.random.key(3)


def start(config: ModelConfig) -> dict[str, np.ndarray]:
    """Return, by path, the initial values that replace parameters of 1."""
    found = restarted_ones(build(config, 300, 301))
    return {k: np.asarray(v) for k, v in found.items()}


def restarted_ones(model):
    """Return, by path, what replaces parameters of 1 in a model."""
    ones = jax.tree.map(lambda x: jnp.ones(x.shape), abstract_params(model))  # in their boxes
    return flatten_dict(nn.unbox(restarted(model.config, ones, KEY)), sep="/")


def drawn(model):
    """Return the initial values of a model."""
    return jax.jit(lambda: nn.unbox(init_params(model, KEY)))()


def expected(path: str, kernels: dict[str, float], tables: dict[str, float]) -> float | None:
    """Return a standard deviation by the module's name, or None for what is not replaced."""
    module, leaf = path.split("/")[-2:]
    return {"kernel": kernels, "table": tables}.get(leaf, {}).get(module)


T5 = {
    "query": (48 * 25) ** -0.5, "key": 48**-0.5, "value": 48**-0.5, "output": (4 * 36) ** -0.5,
    "up": 48**-0.5, "gate": 48**-0.5, "down": 80**-0.5,
}  # fmt: skip
T5_TABLES = {"src_embedding": 1.0, "tgt_embedding": 1.0, "output": 48**-0.5}
GPT2 = dict.fromkeys(("query", "key", "value", "up", "gate"), 0.02)
GPT2_TABLES = dict.fromkeys(
    ("src_embedding", "tgt_embedding", "output", "src_positions", "tgt_positions"), 0.02
)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("name", "scores"), [("t5", "none"), ("t5", "inverse_sqrt"), ("gpt2", "inverse_sqrt")]
)
def test_standard_deviations_are_as_published(name, scores):
    """Every parameter, within four standard errors; biases, scales and T5's positions stay.

    Divided or not, T5's attention scores start at the same scale.
    """
    found = start(dataclasses.replace(BASE, initializer=name, score_scale=scores))
    for path, values in found.items():
        if name == "t5":
            query = T5["query"] * (1 if scores == "none" else 25**0.5)
            wanted = expected(path, T5 | {"query": query}, T5_TABLES)
        else:
            # Two residual parts in each of 2 encoder layers, three in each of 3 decoder layers.
            ending = 0.02 / 2 if path.startswith("encoder") else 0.02 / 3
            wanted = expected(path, GPT2 | {"output": ending, "down": ending}, GPT2_TABLES)
        if wanted is None:
            assert (values == 1).all(), path
        else:
            error = 4 / values.size**0.5
            assert abs(values.mean()) < error * wanted, path
            assert values.std() == pytest.approx(wanted, rel=error), path
    first, second = (found[f"encoder/layer_{i}/feed_forward/up/kernel"] for i in range(2))
    assert not np.allclose(first, second)


def test_a_stack_of_gpt2_zero_starts_as_the_identity():
    """The maps that end residual parts are zero; all others are GPT-2's, number by number."""
    zero, gpt2 = (
        start(dataclasses.replace(BASE, initializer=name)) for name in ("gpt2_zero", "gpt2")
    )
    ends = ("/output/kernel", "/down/kernel")
    for path, values in zero.items():
        wanted = 0 if path.endswith(ends) and "coder" in path else gpt2[path]
        np.testing.assert_array_equal(values, np.broadcast_to(wanted, values.shape), path)


@pytest.mark.thorough
def test_xavier_is_uniform_within_its_bounds():
    """The first axes of a kernel are its input; tables are normal, recurrent matrices orthogonal.

    sqrt(6 / (in + out)) (Glorot and Bengio 2010); N(0, 1 / d_model).
    """
    model = build(dataclasses.replace(BASE, num_encoder_layers=1, num_decoder_layers=1), 300, 301)
    params = flatten_dict(drawn(model), sep="/")
    outward = {"output": 4 * 36, "down": 80}
    kernels = {name: x for name, x in params.items() if name.endswith("/kernel")}
    assert {name.split("/")[-2] for name in kernels} == {*T5}
    for path, values in kernels.items():
        fan_in = outward.get(path.split("/")[-2], 48)
        bound = (6 / (fan_in + values.size // fan_in)) ** 0.5
        assert 0.97 * bound < np.abs(values).max() <= bound, path
        assert values.std() == pytest.approx(bound / 3**0.5, rel=4 / values.size**0.5), path
    for name in ("src_embedding", "tgt_embedding", "output"):
        assert params[f"{name}/table"].std() == pytest.approx(48**-0.5, rel=0.05)
    assert INITIALIZERS.keys() == {"xavier", "t5", "gpt2", "gpt2_zero"}  # those tested here


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_recurrent_matrices_are_orthogonal(kind):
    config = dataclasses.replace(BASE, architecture="decoder", num_encoder_layers=6,
                                 num_decoder_layers=1, decoder_pattern=(kind,))  # fmt: skip
    params = flatten_dict(drawn(build(config, 300, 301)), sep="/")
    (matrices,) = (x for name, x in params.items() if name.endswith("recurrent_kernel"))
    for gate in range(matrices.shape[1]):
        matrix = np.float64(matrices[:, gate])
        np.testing.assert_allclose(matrix.T @ matrix, np.eye(48), atol=1e-5)


ENCODER = dataclasses.replace(
    BASE, architecture="encoder", num_decoder_layers=6, token_types=40, input_norm=True,
    positions="sinusoidal",
)  # fmt: skip


@pytest.mark.parametrize("name", ["t5", "gpt2"])
def test_encoder_heads_and_token_types_are_initialised(name):
    """Heads as maps of the residual stream, token types as embeddings."""
    inward, embedding = {"t5": (48**-0.5, 1.0), "gpt2": (0.02, 0.02)}[name]
    config = dataclasses.replace(ENCODER, initializer=name)
    for predicts, heads in ((["tokens"], ["piece_head/dense/kernel", "output/table"]),
                            (["class"], ["pooler/kernel", "class_head/table"])):  # fmt: skip
        model = build(config, 300, 41, predicts=predicts)
        found = restarted_ones(model)
        wanted = dict.fromkeys(heads, inward)
        wanted |= dict.fromkeys(("embedding/table", "kinds/table"), embedding)
        for path, deviation in wanted.items():
            values = np.asarray(found[path])
            assert values.std() == pytest.approx(deviation, rel=4 / values.size**0.5), path


@pytest.mark.parametrize(("name", "deviation"), [("t5", 1.0), ("gpt2", 0.02)])
def test_a_query_stream_starts_like_a_piece(name, deviation):
    config = dataclasses.replace(
        BASE, architecture="two_stream", num_encoder_layers=6, initializer=name
    )
    values = start(config)["mask_emb"]
    assert values.std() == pytest.approx(deviation, rel=4 / values.size**0.5)


@pytest.mark.parametrize(
    ("changes", "betas"),
    [
        # 0.87 (2^4 3)^(-1/16) and (12 x 3)^(-1/4).
        ({}, {"encoder": 0.683033, "decoder": 0.408248}),
        # (8 x 3)^(-1/4).
        ({"architecture": "decoder", "num_encoder_layers": 6}, {"decoder": 0.451801}),
        # (8 x 2)^(-1/4).
        ({"architecture": "encoder", "num_decoder_layers": 6}, {"encoder": 0.5}),
    ],
)
def test_deep_norm_scales_some_maps_down(changes, betas):
    """Values, outputs and feed-forward layers, by the constant of their stack, and nothing else."""
    for path, values in start(dataclasses.replace(BASE, residual="deep_norm", **changes)).items():
        stack, (module, leaf) = path.split("/")[0], path.split("/")[-2:]
        smaller = stack in betas and leaf == "kernel" and module not in ("query", "key")
        np.testing.assert_allclose(values, betas[stack] if smaller else 1, rtol=1e-5, err_msg=path)


@pytest.mark.parametrize(
    ("changes", "path", "parts"),
    [
        # A Perceiver's cross layers count separately; a Conformer layer has four residual parts.
        ({"architecture": "perceiver"}, "input_layer/feed_forward/down/kernel", 2),
        ({"architecture": "perceiver"}, "encoder/layer_0/feed_forward/down/kernel", 2 * 2),
        ({"architecture": "encoder", "encoder_pattern": ("conformer",), "residual": "pre_norm"},
         "encoder/layer_0/self_attention/output/kernel", 2 * 4),
    ],
)  # fmt: skip
def test_gpt2_divides_by_the_residual_parts_of_a_stack(changes, path, parts):
    config = dataclasses.replace(BASE, initializer="gpt2", num_decoder_layers=6, **changes)
    values = start(config)[path]
    deviation = 0.02 / parts**0.5
    assert values.std() == pytest.approx(deviation, rel=4 / values.size**0.5)


def test_deep_norm_counts_the_layers_in_use():
    """Two-stream models have those of the decoder, encoders their own."""
    for architecture, layers in (("decoder", 3), ("two_stream", 3), ("encoder", 2)):
        default = "num_decoder_layers" if architecture == "encoder" else "num_encoder_layers"
        changes = {"residual": "deep_norm", "architecture": architecture, default: 6}
        found = deep_norm(dataclasses.replace(BASE, **changes), cross=False)
        assert found == pytest.approx(((2 * layers) ** 0.25, (8 * layers) ** -0.25))


@pytest.mark.thorough
def test_new_models_start_from_the_initial_values():
    """Modules draw Xavier's values, which the other methods scale or replace."""

    def kernel(**changes):
        model = build(dataclasses.replace(MODEL, **changes), VOCAB, VOCAB)
        # Not compiled as a whole: a draw would then be fused with its scale, and rounded otherwise.
        params = nn.unbox(init_params(model, KEY))
        return np.asarray(params["decoder"]["layer_0"]["feed_forward"]["down"]["kernel"])

    np.testing.assert_allclose(kernel(residual="deep_norm"), 12**-0.25 * kernel(), rtol=1e-6)
    assert np.abs(kernel(initializer="gpt2")).max() < 0.06 < np.abs(kernel()).max()


def test_an_unknown_parameter_is_rejected():
    odd = unflatten_dict({("encoder", "layer_0", "odd", "kernel"): jnp.ones((2, 2))})
    assert restarted(BASE, odd, KEY) is odd
    with pytest.raises(UserError, match=r"initializer='t5'.*encoder/layer_0/odd/kernel.*'xavier'"):
        restarted(dataclasses.replace(BASE, initializer="t5"), odd, KEY)


def test_what_has_no_initial_values_is_refused_at_once():
    """Before the data is read: layers of every kind, as the roles of their parameters say."""
    for kind in typing.get_args(MixerKind):
        if any(need.field == "architecture" for need in MIXERS[kind].needs):
            continue  # a kind of model that has its own
        stack = "encoder" if "encoder" in MIXERS[kind].stacks else "decoder"
        plain = ModelConfig(
            architecture=stack, d_model=8, d_ff=8, num_heads=2, residual="pre_norm",
            window=2 if kind in WITHIN else None,
            **{f"num_{stack}_layers": 1, f"{stack}_pattern": (kind,)},
        )  # fmt: skip
        parts = {role.part for role in roles_of(build(plain, 9, 9)).values()}
        if "other" not in parts:
            dataclasses.replace(plain, initializer="gpt2")
        else:
            with pytest.raises(UserError, match=rf"initializer='gpt2'.*{kind}.*'xavier'"):
                dataclasses.replace(plain, initializer="gpt2")
    with pytest.raises(UserError, match=r"initializer='gpt2'.*'autoencoder'"):
        ModelConfig(architecture="autoencoder", stem="linear", initializer="gpt2")
