"""Our Decision Transformer equals `transformers`' DecisionTransformerModel (`make oracle`)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from oracle.compare import as_tree, assert_close
from oracle.decoders import Wide
from oracle.stems import DECISIONS

from transformer_jax.config import TrainingConfig
from transformer_jax.data.batches.batch import Batch, Side, Target
from transformer_jax.models.build import build
from transformer_jax.training.step import batch_sums

pytestmark = pytest.mark.oracle
STATE, ACTION, STEPS = 5, 3, 6
LENGTHS = (6, 4, 1)
WIDTH, HEADS = DECISIONS.d_model, DECISIONS.num_heads
WORDS = {
    "stem/return_map": "embed_return", "stem/state_map": "embed_state",
    "stem/action_map": "embed_action", "input_norm": "embed_ln",
    "decoder/final_norm": "encoder.ln_f", "action_head": "predict_action.0",
}  # fmt: skip
LAYER = {
    "self_attention_residual/norm": "ln_1", "feed_forward_residual/norm": "ln_2",
    "self_attention/output": "attn.c_proj", "feed_forward/up": "mlp.c_fc",
    "feed_forward/down": "mlp.c_proj",
}  # fmt: skip


@pytest.fixture
def peer(monkeypatch):
    """Return the model with random weights in float64. Its positions, which the original does not
    have and of which it adds the first to everything, are zero.
    """
    import torch
    import transformers
    from transformers.models.decision_transformer import modeling_decision_transformer as module

    monkeypatch.setattr(module, "torch", Wide("torch"))
    c = DECISIONS
    model = transformers.DecisionTransformerModel(transformers.DecisionTransformerConfig(
        state_dim=STATE, act_dim=ACTION, hidden_size=WIDTH, max_ep_len=c.max_positions,
        n_layer=c.num_decoder_layers, n_head=HEADS, n_inner=c.d_ff, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0,
    )).eval().double()  # fmt: skip
    torch.manual_seed(0)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.copy_(0.3 * torch.randn_like(tensor) + ("ln" in name and "weight" in name))
        model.encoder.wpe.weight.zero_()
    return model


def as_ours(tensors) -> dict[str, np.ndarray]:
    """Return the peer's arrays, or gradients, under our names."""

    def both(name: str, other: str, turned: bool) -> dict[str, np.ndarray]:
        weight, bias = (tensors[f"{other}.{leaf}"] for leaf in ("weight", "bias"))
        kind = "scale" if "norm" in name else "kernel"
        return {f"{name}/{kind}": weight.T if turned else weight, f"{name}/bias": bias}

    found = {"positions/table": tensors["embed_timestep.weight"]}
    for name, other in WORDS.items():
        found |= both(name, other, turned="norm" not in name)
    for i in range(DECISIONS.num_decoder_layers):
        at, there = f"decoder/layer_{i}", f"encoder.h.{i}"
        for name, other in LAYER.items():  # kernels of Conv1D are [in out], as ours
            found |= both(f"{at}/{name}", f"{there}.{other}", turned=False)
        path = f"{at}/self_attention/output/kernel"
        found[path] = found[path].reshape(HEADS, -1, WIDTH)
        together = (tensors[f"{there}.attn.c_attn.{leaf}"] for leaf in ("weight", "bias"))
        each = (np.split(array, 3, axis=-1) for array in together)
        for name, kernel, bias in zip(("query", "key", "value"), *each, strict=True):
            found[f"{at}/self_attention/{name}/kernel"] = kernel.reshape(WIDTH, HEADS, -1)
            found[f"{at}/self_attention/{name}/bias"] = bias.reshape(HEADS, -1)
    return found


def drawn() -> dict[str, np.ndarray]:
    """Return the steps of windows that begin in the middle of trajectories."""
    rng = np.random.default_rng(1)
    rows = len(LENGTHS)
    real = np.arange(STEPS) < np.array(LENGTHS)[:, None]
    return {
        "states": rng.normal(size=(rows, STEPS, STATE)),
        "actions": rng.uniform(-1, 1, (rows, STEPS, ACTION)),
        "returns_to_go": rng.normal(size=(rows, STEPS, 1)),
        "timesteps": np.where(real, np.arange(STEPS) + np.array([[0], [3], [7]]), 0),
        "attention_mask": real.astype(np.int64),
    }


def batch_of(steps: dict[str, np.ndarray], actions: np.ndarray) -> Batch:
    read = [steps["timesteps"][..., None], steps["returns_to_go"], steps["states"]]
    seg = steps["attention_mask"].astype(np.int32)
    pos = np.tile(np.arange(STEPS, dtype=np.int32), (len(seg), 1)) * seg
    weight = seg.astype(np.float64)
    target = {"action": Target(actions, weight)}
    return Batch(Side(np.concatenate(read, -1), pos, seg), Side(actions, pos, seg), target)


def ours(config, batch: Batch, params):
    """Return our prediction, the mean loss, and its gradients by name, in float64."""
    with jax.enable_x64(True):
        model = build(config, 2 + STATE, ACTION, "float64", predicts=("action",))

        def mean(params, batch):
            sums = batch_sums(model, TrainingConfig(), params, batch, None)
            return sums.loss / sums.weight, model.outputs(params, batch, None)["action"].logits()

        run = jax.jit(jax.value_and_grad(mean, has_aux=True))
        (loss, said), slopes = run(as_tree(params, "float64"), jax.tree.map(jnp.asarray, batch))
        return np.asarray(said), float(loss), flatten_dict(slopes, sep="/")


def compared(found, said, loss, slopes, real):
    assert_close("actions", found[0][real], said[real], 1e-12)
    assert_close("loss", np.array(found[1]), np.array(loss), 1e-12)
    assert found[2].keys() == slopes.keys()
    for path, expected in slopes.items():
        if not path.endswith("key/bias"):  # on which a softmax does not depend
            assert_close(f"gradient of {path}", np.asarray(found[2][path]), expected, 1e-12)


def arrays(tensors):
    return {name: x.detach().numpy() for name, x in tensors}


def test_continuous_actions(peer):
    """Actions, their squared error over real steps, and every gradient agree in float64."""
    import torch

    steps = drawn()
    given = {name: torch.tensor(array) for name, array in steps.items()}
    said = peer(**given).action_preds
    real = steps["attention_mask"] > 0
    loss = torch.nn.functional.mse_loss(said[real], given["actions"][real])  # as the paper's code
    loss.backward()
    named = dict(peer.named_parameters())
    slopes = as_ours({n: np.zeros(x.shape) if x.grad is None else x.grad.numpy()
                      for n, x in named.items()})  # fmt: skip
    found = ours(DECISIONS, batch_of(steps, steps["actions"]), as_ours(arrays(named.items())))
    compared(found, said.detach().numpy(), loss.item(), slopes, real)


def test_discrete_actions(peer):
    """They are vectors with a 1 in their place where they are read, and have a cross-entropy."""
    import torch

    steps = drawn()
    chosen = np.random.default_rng(2).integers(0, ACTION, steps["timesteps"].shape)
    given = {name: torch.tensor(array) for name, array in steps.items()}
    given["actions"] = torch.nn.functional.one_hot(torch.tensor(chosen), ACTION).double()
    peer.predict_action = peer.predict_action[:1]  # no tanh
    said = peer(**given).action_preds
    real = steps["attention_mask"] > 0
    loss = torch.nn.functional.cross_entropy(said[real], torch.tensor(chosen)[real])
    loss.backward()
    named = dict(peer.named_parameters())
    renamed = {"action_head/kernel": "action_head/table"}

    def ours_of(tensors):
        found = as_ours(tensors)
        return {renamed.get(n, n): x.T if n in renamed else x for n, x in found.items()}

    slopes = ours_of({n: np.zeros(x.shape) if x.grad is None else x.grad.numpy()
                      for n, x in named.items()})  # fmt: skip
    config = dataclasses.replace(DECISIONS, actions="discrete")
    batch = batch_of(steps, chosen.astype(np.int32))
    found = ours(config, batch, ours_of(arrays(named.items())))
    compared(found, said.detach().numpy(), loss.item(), slopes, real)
