"""Our model and loss equal what `transformers` computed once; tests/oracle asks it live."""

import numpy as np
import pytest
from golden.record import ARRAYS, HERE, VOCAB
from oracle.batches import unflat
from oracle.compare import Results, assert_same, ours, shapes
from oracle.weights import TRANSFORMERS, from_torch


@pytest.mark.parametrize("residual", sorted(ARRAYS))
def test_equals_the_recorded_arrays(residual):
    with np.load(HERE / f"{residual}.npz") as file:
        recorded = dict(file)

    def under(prefix):
        names = (name for name in recorded if name.startswith(prefix))
        return {name.removeprefix(prefix): recorded[name] for name in names}

    tree = shapes(ARRAYS[residual], VOCAB, VOCAB)
    weights, gradients = (
        from_torch({name: pair[i] for name, pair in under("tensors/").items()}, tree, TRANSFORMERS)
        for i in range(2)
    )
    mine = ours(ARRAYS[residual], (VOCAB, VOCAB), weights, unflat(under("batch/")))
    theirs = Results(recorded["logits"], under("losses/"), {"tensor2tensor": gradients})
    assert mine.losses.keys() == theirs.losses.keys()
    assert_same(mine, theirs)
