"""BERT's heads and their losses equal those of `transformers`, in float64 (`make oracle`)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict
from oracle.cases import BERT, VOCAB
from oracle.compare import as_tree, assert_close
from oracle.weights import from_torch

from transformer_jax.config import TrainingConfig
from transformer_jax.data.batches.batch import Batch, Side, Target
from transformer_jax.models.build import abstract_params, build
from transformer_jax.training.step import batch_sums

pytestmark = pytest.mark.oracle
LENGTHS = np.array([9, 7, 5])
IGNORED = -100  # by their cross-entropy
OF_ALL_PLACES = ("span_head/bias", "encoder/layer_1/feed_forward_residual/norm/bias")


def read() -> Side:
    """Return one text per row, of two segments, followed by padding."""
    place = np.arange(9) * np.ones((3, 1), np.int32)
    seg = (place < LENGTHS[:, None]).astype(np.int32)
    ids = np.random.default_rng(1).integers(4, VOCAB, seg.shape) * seg
    kind = (place > LENGTHS[:, None] // 2) * seg
    return Side(*(x.astype(np.int32) for x in (ids, place * seg, seg)), kind=kind.astype(np.int32))


def labels_at(places: list[list[int]], count: int) -> tuple[Target, np.ndarray]:
    """Return random labels at some positions of a row, and all labels as theirs takes them."""
    weight = np.zeros((3, 9), np.float32)
    for row, columns in enumerate(places):
        weight[row, columns] = 1
    labels = np.random.default_rng(2).integers(0, count, weight.shape) * (weight > 0)
    return Target(labels.astype(np.int32), weight), np.where(weight > 0, labels, IGNORED)


def asked() -> Side:
    """Return a target side with one position per text."""
    ones = np.ones((3, 1), np.int32)
    return Side(0 * ones, 0 * ones, ones)


def pretraining() -> tuple[Batch, dict[str, np.ndarray], dict[str, str]]:
    """Return two masked pieces of each text and whether its second segment follows."""
    pieces, hidden = labels_at([[1, 4], [2, 6], [0, 3]], VOCAB)
    follows = Target(np.int32([[0], [1], [1]]), np.full((3, 1), 2, np.float32))
    batch = Batch(read(), asked(), {"tokens": pieces, "next_sentence": follows})
    theirs = {"labels": hidden, "next_sentence_label": follows.labels[:, 0]}
    return (
        batch,
        theirs,
        {"tokens": "prediction_logits", "next_sentence": "seq_relationship_logits"},
    )


def tagging() -> tuple[Batch, dict[str, np.ndarray], dict[str, str]]:
    """Return labels of words, which may have several pieces."""
    tags, labels = labels_at([[1, 2, 4, 5, 7], [1, 3, 4], [2]], 5)
    return Batch(read(), None, {"tags": tags}), {"labels": labels}, {"tags": "logits"}


def values() -> tuple[Batch, dict[str, np.ndarray], dict[str, str]]:
    """Return a number for each text."""
    numbers = np.array([[0.5], [-1.25], [2.0]])
    batch = Batch(read(), asked(), {"value": Target(numbers, np.ones((3, 1), np.float32))})
    return batch, {"labels": numbers[:, 0]}, {"value": "logits"}


def spans() -> tuple[Batch, dict[str, np.ndarray], dict[str, str]]:
    """Return the ends of an answer in each text; none is padded, as theirs scores padding too."""
    side, ends = read(), np.int32([[2, 4], [7, 7], [0, 0]])
    place = np.arange(9, dtype=np.int32) * np.ones((3, 1), np.int32)
    ids = np.where(side.seg > 0, side.inputs, 5).astype(np.int32)
    side = side._replace(inputs=ids, pos=place, seg=np.ones_like(side.seg))
    two = np.ones((3, 2), np.int32)
    asked = Side(0 * two, np.arange(2, dtype=np.int32) * two, two)
    batch = Batch(side, asked, {"span": Target(ends, np.ones((3, 2), np.float32))})
    return batch, {"start_positions": ends[:, 0], "end_positions": ends[:, 1]}, {}


def case_of(name: str) -> Any:
    """Return (their class, our batch, its labels as they take them, their names of our outputs)."""
    from oracle import encoders

    made = {"pretraining": (encoders.BertOfPairs, pretraining),
            "tags": (encoders.BertOfTags, tagging),
            "values": (encoders.BertOfValues, values),
            "spans": (encoders.BertOfSpans, spans)}  # fmt: skip
    kind, batch = made[name]
    return kind, *batch()


@pytest.mark.parametrize("name", ["pretraining", "tags", "values", "spans"])
def test_losses_equal_those_of_transformers(name):
    """Their own loss, every logit outside padding and the gradient of every parameter agree."""
    import torch
    from oracle import peers

    kind, batch, given, names = case_of(name)
    peer = kind(BERT, VOCAB)
    peers.randomise(peer)
    peer = peer.double()
    src = batch.src
    fields = {
        "input_ids": src.inputs,
        "attention_mask": src.seg,
        "token_type_ids": src.kind,
        **given,
    }
    found = peer.model(**{
        key: torch.from_numpy(value).to(torch.double if value.dtype == np.float64 else torch.long)
        for key, value in fields.items()
    })  # fmt: skip
    found.loss.backward()
    with jax.enable_x64(True):
        predicts = tuple(batch.targets)
        model = build(BERT, VOCAB, peer.labels or VOCAB, dtype="float64", predicts=predicts)
        tree = nn.unbox(abstract_params(model))
        params = as_tree(from_torch(peers.to_numpy(peer.tensors()), tree, peer.words), "float64")
        arrays = jax.tree.map(jnp.asarray, batch)
        config = TrainingConfig(label_smoothing=0.0)

        def loss(params):
            sums = batch_sums(model, config, params, arrays, None)
            return sums.loss / sums.weight

        mine, gradients = jax.jit(jax.value_and_grad(loss))(params)
        outputs = model.outputs(params, arrays, None)
        found_here = {name: np.asarray(output.logits()) for name, output in outputs.items()}
        mine, gradients = jax.tree.map(np.asarray, (mine, gradients))
    assert mine.dtype == "float64"
    assert_close("loss", mine, found.loss.item())
    for output, theirs in names.items():
        logits = found_here[output]
        expected = found[theirs].detach().numpy().reshape(logits.shape)
        real = (src.seg if logits.shape[1] == src.seg.shape[1] else batch.tgt.seg) > 0
        assert_close(output, logits[real], expected[real])
    if name == "spans":
        ends = np.stack([found.start_logits.detach(), found.end_logits.detach()], axis=1)
        assert_close("span", found_here["span"], ends)
    theirs = peers.to_numpy({n: p.grad for n, p in peer.tensors().items()})
    for path, expected in from_torch(theirs, tree, peer.words).items():
        ours = flatten_dict(gradients, sep="/")[path]
        if path.endswith("key/bias") or (name == "spans" and path in OF_ALL_PLACES):
            # It adds one number to all logits of a softmax: its gradient is zero up to rounding.
            assert max(np.abs(ours).max(), np.abs(expected).max()) < 1e-14
        else:
            assert_close(f"gradient of {path}", ours, expected)
