"""DeepSeek-V3's multi-token prediction beside that of `transformers`, in float64."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict
from oracle.cases import DEEPSEEK, VOCAB
from oracle.compare import assert_close, shapes
from oracle.weights import from_torch

from transformer_jax.config import TrainingConfig
from transformer_jax.data.batches.batch import Batch, Side, Target
from transformer_jax.models.build import build
from transformer_jax.training.step import batch_sums

pytestmark = pytest.mark.oracle

LENGTH = 9
CONFIG = dataclasses.replace(
    DEEPSEEK, feed_forward_pattern=("dense", "experts"), num_experts=5, experts_per_token=3,
    shared_experts=2, expert_scores="sigmoid", embedding_scale=False, multi_token="sequential",
    future_tokens=2,
)  # fmt: skip
WEIGHT = 0.3


def test_predictions_losses_and_gradients_are_those_of_transformers(monkeypatch):
    """Two parts in a chain, with experts. Their own training pass fails in version 5.23, so its
    layers are called one by one, and the losses are torch's cross-entropies.
    """
    import torch
    from oracle import decoders, peers
    from transformers import modeling_layers

    decoders.widen(monkeypatch)
    main = decoders.DeepseekV3(CONFIG, VOCAB)
    main.model.config.num_mtp_layers = CONFIG.future_tokens
    mtp = modeling_layers.MtpModel(main.model, CONFIG.future_tokens).eval()
    for layer in mtp.layers:  # a parameter, so that it is randomised
        gate = layer.mtp_block.mlp.gate
        bias = torch.nn.Parameter(gate.e_score_correction_bias.clone())
        gate.e_score_correction_bias = None
        gate.e_score_correction_bias = bias
    further = {name: x for name, x in mtp.named_parameters() if name.startswith("layers.")}
    monkeypatch.setattr(main, "tensors", lambda: dict(main.model.named_parameters()) | further)
    peers.randomise(main)
    main, mtp = main.double(), mtp.double()

    ids = np.random.default_rng(0).integers(4, VOCAB, (1, LENGTH + 1))
    text = torch.tensor(ids)
    places = torch.arange(LENGTH)[None]
    hidden = main.model.model(text[:, :-1], use_cache=False).last_hidden_state
    logits = [main.model.lm_head(hidden)]
    for depth in range(CONFIG.future_tokens):
        count = LENGTH - 1 - depth
        hidden = mtp.forward_layer(
            depth, hidden[:, :count], places[:, 1 + depth : 1 + depth + count], None,
            text[:, 1 + depth : 1 + depth + count],
        )  # fmt: skip
        logits.append(main.model.lm_head(hidden))
    losses = [
        torch.nn.functional.cross_entropy(x[0], text[0, 1 + depth :], reduction="sum") / LENGTH
        for depth, x in enumerate(logits)
    ]
    loss = losses[0] + WEIGHT / CONFIG.future_tokens * sum(losses[1:])
    loss.backward()

    tree = shapes(CONFIG, VOCAB, VOCAB)

    def translated(tensors):
        """Our leaves: those of the main model, and each part's layer as if it were a decoder's."""
        own = {name: x for name, x in tensors.items() if not name.startswith("layers.")}
        rest = {name: x for name, x in tree.items() if not name.startswith("future")}
        found = from_torch(main.apart(own), rest, main.words)
        for depth in range(CONFIG.future_tokens):
            part, start = tree[f"future_{depth + 1}"], f"layers.{depth}."
            mine = {n.removeprefix(start): x for n, x in tensors.items() if n.startswith(start)}
            layer = {
                n.replace("mtp_block.", "model.layers.0.").replace("post_norm", "model.norm"): x
                for n, x in mine.items()
                if n.startswith(("mtp_block.", "post_norm."))
            }
            stack = from_torch(main.apart(layer), {"decoder": part["stack"]}, main.words)
            here = {f"stack/{path.removeprefix('decoder/')}": x for path, x in stack.items()}
            here["piece_norm/scale"], here["hidden_norm/scale"] = (
                mine["enorm.weight"], mine["hnorm.weight"]
            )  # fmt: skip
            here["join/kernel"] = mine["eh_proj.weight"].T.reshape(2, CONFIG.d_model, -1)
            found |= {f"future_{depth + 1}/{path}": x for path, x in here.items()}
        return found

    params = translated(peers.to_numpy(main.tensors()))
    wanted = translated({name: x.grad.numpy() for name, x in main.tensors().items()
                         if x.grad is not None}
                        | {name: np.zeros(x.shape) for name, x in main.tensors().items()
                           if x.grad is None})  # fmt: skip
    with jax.enable_x64(True):
        model = build(CONFIG, VOCAB, VOCAB, dtype="float64")
        ones = np.ones((1, LENGTH), np.int32)
        batch = Batch(
            None, Side(ids[:, :-1].astype(np.int32), np.arange(LENGTH, dtype=np.int32)[None], ones),
            {"tokens": Target(ids[:, 1:].astype(np.int32), np.ones((1, LENGTH)))},
        )  # fmt: skip
        batch = jax.tree.map(jnp.asarray, batch)
        totals = TrainingConfig(label_smoothing=0.0, multi_token_weight=WEIGHT)

        def mean(params):
            sums = batch_sums(model, totals, params, batch, None)
            outputs = model.outputs(params, batch, None)
            return sums.loss / sums.weight, {name: x.logits() for name, x in outputs.items()}

        given = unflatten_dict({path: jnp.asarray(x) for path, x in params.items()}, sep="/")
        (ours, said), slopes = jax.jit(jax.value_and_grad(mean, has_aux=True))(given)
    for depth, (name, theirs) in enumerate(zip(sorted(said, key=len), logits, strict=True)):
        assert name == ("tokens" if not depth else f"future_{depth}")
        assert_close(name, np.asarray(said[name])[:, : LENGTH - depth], theirs.detach().numpy())
    assert_close("loss", float(ours), loss.item())
    leaves = flatten_dict(slopes, sep="/")
    assert leaves.keys() == wanted.keys()
    for path, slope in leaves.items():
        if not path.endswith("load_bias"):  # ours is the load
            assert_close(path, np.asarray(slope), wanted[path])
