"""Our VQ-VAE equals one between two ViTs of `transformers`, and our VAE one with the normal
distribution of `diffusers` (`make oracle`).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from oracle.compare import as_tree, assert_close
from oracle.stems import AUTOENCODER, LINEAR, VARIATIONAL
from oracle.test_vit import CHANNELS, PATCH, SIDE, as_ours, peer_of

from transformer_jax.config import TrainingConfig
from transformer_jax.data.batches.batch import Batch, Side, Target
from transformer_jax.models.build import build
from transformer_jax.training.step import batch_sums

pytestmark = pytest.mark.oracle
PATCHES, PIXELS = (SIDE // PATCH) ** 2, PATCH**2 * CHANNELS


def layers_of(peer, x):
    """Return the output of a ViT's layers for x."""
    x = x + peer.vit.embeddings.position_embeddings[:, 1:]
    for layer in peer.vit.layers:
        x = layer(x)
    return peer.vit.layernorm(x)


def named(reader, writer, maps):
    """Return arrays of both ViTs and of the maps between and after them, under our names."""
    found = {}
    for tensors, own, stack, positions in (
        (reader, ("stem/patch",), "encoder", "positions"),
        (writer, (), "decoder", "code_positions"),
    ):
        for name, array in as_ours(tensors, LINEAR).items():
            if name.startswith(("encoder/", *own)):
                found[name.replace("encoder/", f"{stack}/")] = array
            if name == "positions/table":
                found[f"{positions}/table"] = array[1:]
    for name in ("enter", "leave", "output"):
        path = "pixels" if name == "output" else f"codes/{name}"
        found[f"{path}/kernel"] = maps[f"{name}.weight"].T
        found[f"{path}/bias"] = maps[f"{name}.bias"]
    return found | ({"codes/table": maps["table.weight"]} if "table.weight" in maps else {})


def quantised(maps, hidden):
    """Return what positions are decoded from, the penalty of each, and their codes."""
    import torch

    near = torch.nn.functional.normalize(maps["enter"](hidden), dim=-1)
    table = torch.nn.functional.normalize(maps["table"].weight, dim=-1)
    codes = torch.cdist(near, table[None].expand(3, -1, -1)).argmin(-1)
    assert len(codes.unique()) > 2
    code = table[codes]
    penalty = ((near.detach() - code) ** 2).sum(-1)
    penalty = penalty + AUTOENCODER.commitment * ((near - code.detach()) ** 2).sum(-1)
    return maps["leave"](near + (code - near).detach()), penalty, codes


def normal(maps, hidden):
    """Return the same of normal numbers, by Stable Diffusion's distribution, which sums the
    divergence over each entry of the first axis; their means in place of codes.
    """
    from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution

    parameters = maps["enter"](hidden).reshape(-1, 2 * VARIATIONAL.code_width, 1, 1)
    distribution = DiagonalGaussianDistribution(parameters)
    means = distribution.mode().reshape(*hidden.shape[:2], -1)
    penalty = VARIATIONAL.kl_weight * distribution.kl().reshape(hidden.shape[:2])
    return maps["leave"](means), penalty, means


@pytest.mark.parametrize(
    ("config", "middle"),
    [(AUTOENCODER, quantised), (VARIATIONAL, normal)],
    ids=["vq_vae", "vae"],
)
def test_autoencoders(config, middle):
    """Vectors, codes or latents, both terms of the loss and every gradient agree in float64."""
    import torch

    reader, writer = peer_of(LINEAR), peer_of(LINEAR)
    torch.manual_seed(3)
    with torch.no_grad():
        for name, tensor in writer.named_parameters():
            tensor.copy_(0.3 * torch.randn_like(tensor) + ("norm" in name and "weight" in name))
    width = config.code_width
    parts = {
        "enter": torch.nn.Linear(config.d_model, width * (1 if config is AUTOENCODER else 2)),
        "table": torch.nn.Embedding(config.num_codes, width),
        "leave": torch.nn.Linear(width, config.d_model),
        "output": torch.nn.Linear(config.d_model, PIXELS),
    }
    if config is not AUTOENCODER:
        del parts["table"]
    maps = torch.nn.ModuleDict(parts).double()
    pictures = np.random.default_rng(1).normal(size=(3, SIDE, SIDE, CHANNELS))
    grid = pictures.reshape(3, 2, PATCH, 2, PATCH, CHANNELS).swapaxes(2, 3)
    vectors = grid.reshape(3, PATCHES, PIXELS)

    embedded = reader.vit.embeddings.patch_embeddings(torch.tensor(pictures.transpose(0, 3, 1, 2)))
    decoded, penalty, codes = middle(maps, layers_of(reader, embedded))
    made = maps["output"](layers_of(writer, decoded))
    error = ((made - torch.tensor(vectors)) ** 2).mean()
    (error + penalty.mean()).backward()

    def arrays(module, gradient):
        return {
            name: np.zeros(x.shape) if x.grad is None else x.grad.numpy()
            if gradient else x.detach().numpy()
            for name, x in module.named_parameters()
        }  # fmt: skip

    modules = reader, writer, maps
    params = named(*({n: x.detach().numpy() for n, x in m.named_parameters()} for m in modules))
    slopes = named(*(arrays(module, True) for module in modules))
    pos = np.tile(np.arange(PATCHES, dtype=np.int32), (3, 1))
    side = Side(vectors, pos, np.ones_like(pos))
    batch = Batch(side, None, {"pixels": Target(vectors, np.ones((3, PATCHES), np.float32))})
    with jax.enable_x64(True):
        model = build(config, PIXELS, PIXELS, "float64", predicts=("pixels",))
        tree, batch = as_tree(params, "float64"), jax.tree.map(jnp.asarray, batch)

        def loss(params):
            sums = batch_sums(model, TrainingConfig(), params, batch, None)
            return sums.loss / sums.weight, sums

        gradients, sums = jax.jit(jax.grad(loss, has_aux=True))(tree)
        found = model.outputs(tree, batch, None)["pixels"].logits()
        own = model.apply({"params": tree}, batch.src, method="to_codes")
    assert_close("codes", np.asarray(own), codes.detach().numpy())
    assert_close("vectors", np.asarray(found), made.detach().numpy())
    assert_close("error", float(sums.nll / sums.weight), error.item())
    assert_close("loss", float(sums.loss / sums.weight), (error + penalty.mean()).item())
    leaves = flatten_dict(gradients, sep="/")
    assert leaves.keys() == slopes.keys()
    for path, expected in slopes.items():
        if path.endswith("key/bias"):  # zero up to rounding: see assert_same
            assert max(np.abs(expected).max(), np.abs(leaves[path]).max()) < 1e-14
        else:
            assert_close(path, np.asarray(leaves[path]), expected)
