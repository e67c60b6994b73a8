"""The summed losses of a bidirectional language model, and their gradients, against torch."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from oracle.batches import PACKED, make_batch
from oracle.cases import ELMO, VOCAB
from oracle.compare import as_tree, assert_close, shapes

from transformer_jax.config import TrainingConfig
from transformer_jax.data.batches.batch import Placement, Ragged
from transformer_jax.data.objectives.both_ways import BidirectionalLM
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.models.build import build
from transformer_jax.training.step import batch_sums

pytestmark = pytest.mark.oracle


def packed():
    """Return the sources of all rows as examples, which are laid out again."""
    src = make_batch(PACKED, VOCAB, VOCAB).src
    texts, places = [], []
    for row, seg in enumerate(src.seg):
        for number in range(1, seg.max() + 1):
            at = np.flatnonzero(seg == number)
            texts.append(src.inputs[row, at].tolist())
            places.append((len(places), row, at[0], 0, number))
    ragged = Ragged.from_lists(texts)
    items = TokenStore(ragged, ragged.emptied())
    placement = Placement(*map(np.array, zip(*places, strict=True)))
    return BidirectionalLM().examples(items, placement, *src.seg.shape, 0), src


def test_both_losses_and_all_gradients():
    import torch  # not at the top: it may be missing
    from oracle import elmo, peers
    from torch.nn import functional as F

    config = dataclasses.replace(ELMO, tied_embeddings="none")
    batch, src = packed()
    np.testing.assert_array_equal(batch.src.inputs, src.inputs)
    model = build(config, VOCAB, VOCAB, "float64", predicts=("tokens", "backward"))
    tree = shapes(config, VOCAB, VOCAB, "tokens")
    peer = elmo.PlainElmo(config, tree)
    peers.randomise(peer)
    peer.double()
    given = {"src_ids": src.inputs, "src_seg": src.seg}
    logits = peer.predictions({k: torch.from_numpy(v).long() for k, v in given.items()})
    loss, count = 0, 0
    for row, seg in enumerate(src.seg):  # each piece from both of its neighbours
        for place in range(len(seg) - 1):
            if seg[place] == seg[place + 1] > 0:
                one, two = (torch.tensor(int(x)) for x in src.inputs[row, place : place + 2])
                loss = loss + F.cross_entropy(logits[0][row, place], two)
                loss = loss + F.cross_entropy(logits[1][row, place + 1], one)
                count += 1
    loss.backward()
    params = peers.to_numpy(peer.tensors())
    training = TrainingConfig(label_smoothing=0.0)
    with jax.enable_x64(True):
        ours = jax.tree.map(jnp.asarray, batch)

        def total(tree):
            sums = batch_sums(model, training, tree, ours, None)
            return sums.loss, sums.tokens

        (mine, tokens), gradients = jax.jit(jax.value_and_grad(total, has_aux=True))(
            as_tree(params, "float64")
        )
    assert float(tokens) == count
    assert_close("loss", float(mine), loss.item())
    for path, leaf in flatten_dict(gradients, sep="/").items():
        assert_close(path, np.asarray(leaf), peer.p[path].grad.numpy())
