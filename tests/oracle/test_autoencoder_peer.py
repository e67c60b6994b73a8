"""Our VQ-VAE equals one between two ViTs of `transformers` (`make oracle`)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from oracle.compare import as_tree, assert_close
from oracle.stems import AUTOENCODER, LINEAR
from oracle.test_vit import CHANNELS, PATCH, SIDE, as_ours, peer_of

from transformer_jax.config import TrainingConfig
from transformer_jax.data.batches.batch import Batch, Side, Target
from transformer_jax.models.build import build
from transformer_jax.training.step import batch_sums

pytestmark = pytest.mark.oracle
CONFIG = AUTOENCODER
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
    return found | {"codes/table": maps["table.weight"]}


def test_vq_vae():
    """Vectors, codes, both terms of the loss and every gradient agree in float64."""
    import torch

    reader, writer = peer_of(LINEAR), peer_of(LINEAR)
    torch.manual_seed(3)
    with torch.no_grad():
        for name, tensor in writer.named_parameters():
            tensor.copy_(0.3 * torch.randn_like(tensor) + ("norm" in name and "weight" in name))
    width = CONFIG.code_width
    maps = torch.nn.ModuleDict({
        "enter": torch.nn.Linear(CONFIG.d_model, width),
        "table": torch.nn.Embedding(CONFIG.num_codes, width),
        "leave": torch.nn.Linear(width, CONFIG.d_model),
        "output": torch.nn.Linear(CONFIG.d_model, PIXELS),
    }).double()  # fmt: skip
    pictures = np.random.default_rng(1).normal(size=(3, SIDE, SIDE, CHANNELS))
    grid = pictures.reshape(3, 2, PATCH, 2, PATCH, CHANNELS).swapaxes(2, 3)
    vectors = grid.reshape(3, PATCHES, PIXELS)

    embedded = reader.vit.embeddings.patch_embeddings(torch.tensor(pictures.transpose(0, 3, 1, 2)))
    near = torch.nn.functional.normalize(maps["enter"](layers_of(reader, embedded)), dim=-1)
    table = torch.nn.functional.normalize(maps["table"].weight, dim=-1)
    codes = torch.cdist(near, table[None].expand(3, -1, -1)).argmin(-1)
    code = table[codes]
    penalty = ((near.detach() - code) ** 2).sum(-1)
    penalty = penalty + CONFIG.commitment * ((near - code.detach()) ** 2).sum(-1)
    made = maps["output"](layers_of(writer, maps["leave"](near + (code - near).detach())))
    error = ((made - torch.tensor(vectors)) ** 2).mean()
    (error + penalty.mean()).backward()
    assert len(codes.unique()) > 2

    def arrays(module, gradient):
        return {
            name: np.zeros(x.shape) if x.grad is None else x.grad.numpy()
            if gradient else x.detach().numpy()
            for name, x in module.named_parameters()
        }  # fmt: skip

    parts = reader, writer, maps
    params = named(*({n: x.detach().numpy() for n, x in m.named_parameters()} for m in parts))
    slopes = named(*(arrays(module, True) for module in parts))
    pos = np.tile(np.arange(PATCHES, dtype=np.int32), (3, 1))
    side = Side(vectors, pos, np.ones_like(pos))
    batch = Batch(side, None, {"pixels": Target(vectors, np.ones((3, PATCHES), np.float32))})
    with jax.enable_x64(True):
        model = build(CONFIG, PIXELS, PIXELS, "float64", predicts=("pixels",))
        tree, batch = as_tree(params, "float64"), jax.tree.map(jnp.asarray, batch)

        def loss(params):
            sums = batch_sums(model, TrainingConfig(), params, batch, None)
            return sums.loss / sums.weight, sums

        gradients, sums = jax.jit(jax.grad(loss, has_aux=True))(tree)
        found = model.outputs(tree, batch, None)["pixels"].logits()
        own = model.apply({"params": tree}, batch.src, method="to_codes")
    assert np.array_equal(own, codes.numpy())
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
