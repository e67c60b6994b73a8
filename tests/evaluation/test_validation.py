"""Which sentences of the validation split are measured and which are translated, by what model."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import MODEL, RUN, VOCAB, random_params, random_store
from written import with_field

from transformer_jax.base.errors import UserError
from transformer_jax.data.batches.batch import Ragged
from transformer_jax.data.batches.batching import BucketPlan
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.codecs.utf8 import Bytes
from transformer_jax.data.sources import Corpus
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.data.texts import spread
from transformer_jax.decoding import weights
from transformer_jax.decoding.text.searching import held
from transformer_jax.decoding.text.translate import NO_TRANSLATION
from transformer_jax.evaluation import validation
from transformer_jax.evaluation.validation import make_validation, notes, selected, warnings
from transformer_jax.models import lora
from transformer_jax.models.build import build
from transformer_jax.sharding.mesh import make_mesh
from transformer_jax.training.loss import Sums

CODECS = TokenizerPair(Bytes(), Bytes())
DATA = dataclasses.replace(RUN.data, max_length=16, tokens_per_batch=128, rows_divisible_by=8)


@given(st.integers(0, 300), st.integers(0, 300))
def test_selected_sentences_are_spread_evenly(total, most):
    """As many as allowed, none twice, and gaps that differ by at most one."""
    chosen = spread(total, most)
    assert len(chosen) == min(total, most)
    assert all(0 <= i < total for i in chosen)
    gaps = {b - a for a, b in zip(chosen, [*chosen[1:], total], strict=True)} if chosen else {1}
    assert min(gaps) >= 1
    assert max(gaps) - min(gaps) <= 1


@pytest.fixture
def measured(monkeypatch):
    """Measure without a model: the function (store, plan) -> (mean target id, longest batch,
    longest source that is translated whole).
    """

    def measure(store: TokenStore, plan: BucketPlan) -> tuple[float, int, int]:
        lengths, named = [], {}

        def sums(params, batch):
            lengths.append(batch.src.seg.shape[1])
            labels, weight = batch.targets["tokens"]
            nothing = Sums(*[jnp.float32(0)] * len(Sums._fields))
            return {"tokens": nothing._replace(nll=labels.sum(), weight=weight.sum())}

        monkeypatch.setattr(validation, "_programs", lambda *_: (jax.jit(sums), lambda x: x))

        def writer(loaded, decoding, **given):
            named["longest"] = loaded.data.max_length
            return SimpleNamespace(translate=lambda params, lines: [NO_TRANSLATION] * len(lines))

        monkeypatch.setattr(validation, "make_writer", writer)
        experiment = with_field(dataclasses.replace(RUN, data=DATA), "evaluation.bleu_sentences", 1)
        nothing = [""] * len(store)
        corpus, mesh = Corpus(nothing, nothing, ""), make_mesh(RUN.mesh)
        model = build(MODEL, VOCAB, VOCAB)
        validate = make_validation(experiment, model, CODECS, corpus, store, plan, mesh)
        return validate(())["loss"], max(lengths), named["longest"]

    return measure


def test_long_pairs_are_left_out_of_the_loss(measured):
    """Pairs that training would drop take no memory here either; for BLEU they are split."""
    whole = random_store([(9, 40), (5, 7), (3, 2), (16, 8), (1, 4), (1000, 12)])
    short = TokenStore(
        *(Ragged(side.ids, side.starts[1:5], side.lengths[1:5]) for side in whole[:2])
    )
    plan = BucketPlan(short, np.arange(len(short)), DATA, 0)
    loss, length, piece = measured(whole, plan)
    assert loss == measured(short, plan)[0]
    assert length <= DATA.max_length
    assert piece == DATA.max_length


@pytest.mark.parametrize("on_cpu", [True, False])
def test_adapted_matrices_are_whole_before_they_are_rounded(monkeypatch, on_cpu):
    """A search for validation holds what one with the stored model holds, on CPUs and elsewhere."""
    maps = ("query", "output", "up", "embedding")
    rounded = dataclasses.replace(MODEL, compute_dtype="bfloat16")
    config = dataclasses.replace(rounded, lora_rank=2, lora_maps=maps)
    model, searched = build(config, VOCAB, VOCAB), []

    def writer(loaded, decoding, **given):
        def translate(params, lines):
            searched.append((loaded.models, params))
            return [NO_TRANSLATION] * len(lines)

        return SimpleNamespace(translate=translate)

    one = Sums(*[np.ones(())] * len(Sums._fields))
    _, whole = validation._programs(model, RUN.training, make_mesh(RUN.mesh))
    monkeypatch.setattr(validation, "_programs", lambda *_: (lambda *_: {"tokens": one}, whole))
    monkeypatch.setattr(validation, "make_writer", writer)
    experiment = with_field(dataclasses.replace(RUN, data=DATA), "evaluation.bleu_sentences", 1)
    store, corpus = random_store([(5, 7)]), Corpus([""], [""], "")
    plan = BucketPlan(store, np.arange(1), DATA, 0)
    params = random_params(model)
    make_validation(experiment, model, CODECS, corpus, store, plan, make_mesh(RUN.mesh))(params)

    monkeypatch.setattr(weights, "on_cpu", lambda: on_cpu)
    weights._cast.clear_cache()
    (models, found), stored = searched[0], build(rounded, VOCAB, VOCAB)
    assert models == (stored,)
    theirs = held([stored], jax.jit(lambda params: lora.merged(params, config))(params))
    jax.tree.map(np.testing.assert_array_equal, held(models, found), theirs)
    weights._cast.clear_cache()


def test_pairs_left_out_are_reported():
    """Long pairs are counted, as in training."""
    store = random_store([(9, 40), (5, 7), (1, 4), (3, 1), (1, 1), (1000, 12)])
    assert selected(store, DATA).pairs.tolist() == [1, 2, 3, 4]
    experiment = dataclasses.replace(RUN, data=DATA)
    said = "validation: the loss leaves out 2 of 6 pairs (longer than 16 pieces)"
    assert notes(store, experiment) == [said]  # BLEU is not requested
    said += "; for BLEU, long sources are translated in parts"
    assert notes(store, with_field(experiment, "evaluation.bleu_sentences", 1)) == [said]
    assert notes(random_store([(9, 4)]), experiment) == []
    with pytest.raises(UserError, match=r"config\.data\.max_length=16: all 2 validation pairs are"):
        selected(random_store([(17, 4), (2, 30)]), DATA)


def test_a_score_that_does_not_suit_the_validation_text_is_warned_of():
    """If it is measured; and if it chooses the best checkpoint, another choice is named."""
    lines = ["我喜欢苹果，不是香蕉！", "他昨天去了北京，今天回来。"]
    corpus = Corpus(lines, lines, "")
    assert warnings(corpus, RUN) == []  # measures the loss alone
    measured = with_field(RUN, "evaluation.bleu_sentences", 2)
    (line,) = warnings(corpus, measured)
    assert line.startswith("evaluation.bleu_tokenize='13a': takes whole phrases")
    assert "best_by" not in line
    (line,) = warnings(corpus, with_field(measured, "checkpoint.best_by", "bleu"))
    assert line.endswith(", or --config.checkpoint.best_by=loss")
    assert warnings(corpus, with_field(measured, "evaluation.bleu_tokenize", "zh")) == []
