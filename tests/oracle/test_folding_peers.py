"""The parts of our Evoformer equal those of ESMFold and ESMFold2 in `transformers` (`make
oracle`).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax.traverse_util import unflatten_dict
from oracle.compare import assert_close
from oracle.decoders import Wide
from transformers import EsmFold2Config
from transformers.models.esm import modeling_esmfold as peers
from transformers.models.esmfold2 import modeling_esmfold2

from transformer_jax.config import ModelConfig
from transformer_jax.nn import pairs

pytestmark = pytest.mark.oracle
ROWS, SEQUENCES, PLACES = 2, 3, 7
CONFIG = ModelConfig(
    architecture="evoformer", stem="pairs", positions="none", d_model=12, num_heads=3,
    pair_width=8, pair_heads=2, outer_width=5, norm_epsilon=1e-5,
)  # fmt: skip
D, Z, HEAD = CONFIG.d_model, CONFIG.pair_width, 4  # both attentions have heads of this size


class Sizes:
    pairwise_state_dim = Z


def random(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape)


MASK = np.arange(PLACES) < np.array([[PLACES], [PLACES - 2]])
BOTH = MASK[:, :, None] & MASK[:, None]


def linear(module, shape=None, out=None) -> dict[str, np.ndarray]:
    """Return a linear map as ours, its kernel with these axes in and out."""
    weight = module.weight.detach().numpy().T
    found = {"kernel": weight.reshape(*(shape or weight.shape[:1]), *(out or weight.shape[1:]))}
    if module.bias is not None:
        bias = module.bias.detach().numpy()
        found["bias"] = bias.reshape(out or bias.shape)
    return found


def norm(module) -> dict[str, np.ndarray]:
    return {"scale": module.weight.detach().numpy(), "bias": module.bias.detach().numpy()}


def attention(module) -> dict[str, dict[str, np.ndarray]]:
    heads = (module.no_heads, HEAD)
    maps = {"query": module.linear_q, "key": module.linear_k, "value": module.linear_v,
            "gate": module.linear_g}  # fmt: skip
    found = {f"attention/{name}": linear(one, out=heads) for name, one in maps.items()}
    return found | {"attention/output": linear(module.linear_o, shape=heads)}


def triangles(incoming: bool):
    peer = peers.EsmFoldTriangleMultiplicativeUpdate(Sizes, _outgoing=not incoming)

    def ours():
        maps = {"left": "a_p", "left_gate": "a_g", "right": "b_p", "right_gate": "b_g",
                "gate": "g", "output": "z"}  # fmt: skip
        found = {name: linear(getattr(peer, f"linear_{one}")) for name, one in maps.items()}
        return found | {"norm": norm(peer.layer_norm_in), "product_norm": norm(peer.layer_norm_out)}

    return peer, ours, lambda x, mask: peer(x, mask)


def starting(ending: bool):
    peer = peers.EsmFoldTriangleAttention(Z, HEAD, CONFIG.pair_heads, starting=not ending)

    def ours():
        found = {"norm": norm(peer.layer_norm), "bias": linear(peer.linear)}
        return found | attention(peer.mha)

    return peer, ours, lambda x, mask: peer(x, mask)


def transition():
    peer = peers.EsmFoldResidueMLP(Z, 4 * Z)

    def ours():
        return {"norm": norm(peer.mlp[0]), "up": linear(peer.mlp[1]), "down": linear(peer.mlp[3])}

    return peer, ours, lambda x, mask: peer(x) - x


PARTS = {
    "outgoing": lambda: triangles(False),
    "incoming": lambda: triangles(True),
    "starting": lambda: starting(False),
    "ending": lambda: starting(True),
    "transition": transition,
}


def randomised(module):
    """Return a peer with random weights: those that start at zero would hide the others."""
    torch.manual_seed(0)
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.5)
    return module


def compared(part, params, inputs, theirs, kept):
    """Compare what a part makes of inputs, where `kept`, and the gradient to the first of them."""
    with jax.enable_x64(True):
        tree = unflatten_dict({tuple(name.split("/")): one for name, one in params.items()})

        def loss(x, *others):
            made = part.apply({"params": tree}, x, *others)
            return (jnp.where(kept[..., None], made, 0) * weights).sum(), made

        x = torch.tensor(inputs[0], requires_grad=True)
        wanted = theirs(x)
        weights = random(*wanted.shape)
        (
            torch.where(torch.tensor(kept)[..., None], wanted, 0) * torch.tensor(weights)
        ).sum().backward()
        gradient, made = jax.grad(loss, has_aux=True)(*map(jnp.asarray, inputs))
    assert_close("output", np.asarray(made)[kept], wanted.detach().numpy()[kept])
    assert_close("gradient", np.asarray(gradient)[kept], x.grad.numpy()[kept])


def test_every_part_is_compared():
    assert {*PARTS} == {*pairs.PARTS}


@pytest.mark.parametrize("kind", PARTS)
def test_parts_over_pairs(kind):
    peer, params, theirs = PARTS[kind]()
    randomised(peer)
    part = pairs.PARTS[kind](CONFIG, jnp.dtype("float64"))
    mask = torch.tensor(BOTH).double()
    compared(
        part, params(), (random(ROWS, PLACES, PLACES, Z), BOTH), lambda x: theirs(x, mask), BOTH
    )


def test_attention_with_a_bias_from_pairs():
    peer = randomised(peers.EsmFoldAttention(D, D, D, HEAD, CONFIG.num_heads))
    norms = [randomised(torch.nn.LayerNorm(size)) for size in (D, Z)]
    bias = randomised(torch.nn.Linear(Z, CONFIG.num_heads, bias=False))
    z = random(ROWS, PLACES, PLACES, Z)
    params = attention(peer) | {"norm": norm(norms[0]), "pair_norm": norm(norms[1]),
                                "bias": linear(bias)}  # fmt: skip
    unseen = 1e9 * (torch.tensor(MASK).double() - 1)[:, None, None, None]

    def theirs(m):
        x = norms[0](m)
        of_pairs = bias(norms[1](torch.tensor(z))).permute(0, 3, 1, 2)[:, None]
        return peer(x, x, [of_pairs, unseen])

    kept = np.broadcast_to(MASK[:, None], (ROWS, SEQUENCES, PLACES))
    part = pairs.RowAttention(CONFIG, jnp.dtype("float64"))
    compared(part, params, (random(ROWS, SEQUENCES, PLACES, D), z, MASK), theirs, kept)


def test_outer_product_mean(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(modeling_esmfold2, "torch", Wide("torch"))
    config = EsmFold2Config(pairwise_hidden_size=Z)
    config.msa_encoder.hidden_size, config.msa_encoder.outer_hidden_size = D, CONFIG.outer_width
    peer = randomised(modeling_esmfold2.EsmFold2OuterProductMean(config))
    # Ours divides by the count of sequences plus 0.001, as AlphaFold does.
    exact = SEQUENCES / (SEQUENCES + 1e-3)
    one, other = peer.input_proj.weight.detach().numpy().T.reshape(D, 2, -1).swapaxes(0, 1)
    zeros = np.zeros(CONFIG.outer_width)
    params = {
        "norm": norm(peer.norm),
        "left": {"kernel": one, "bias": zeros},
        "right": {"kernel": other, "bias": zeros},
        "output": linear(peer.output_proj, shape=(CONFIG.outer_width,) * 2),
    }
    seen = np.broadcast_to(MASK[:, None], (ROWS, SEQUENCES, PLACES))

    def theirs(m):
        by_place = m.permute(0, 2, 1, 3)
        return peer(by_place, torch.tensor(seen).permute(0, 2, 1)) * exact

    m = random(ROWS, SEQUENCES, PLACES, D)
    with jax.enable_x64(True):
        tree = unflatten_dict({tuple(name.split("/")): value for name, value in params.items()})
        part = pairs.OuterProductMean(CONFIG, jnp.dtype("float64"))
        weights = random(ROWS, PLACES, PLACES, Z)

        def loss(m):
            made = part.apply({"params": tree}, m, jnp.asarray(seen))
            return (made * weights * BOTH[..., None]).sum(), made

        gradient, made = jax.grad(loss, has_aux=True)(jnp.asarray(m))
    x = torch.tensor(m, requires_grad=True)
    wanted = theirs(x)
    (wanted * torch.tensor(weights * BOTH[..., None])).sum().backward()
    assert_close("output", np.asarray(made)[BOTH], wanted.detach().numpy()[BOTH])
    assert_close("gradient", np.asarray(gradient), x.grad.numpy())
