"""Scores of mutations by a masked language model: as by hand, in windows, and refused by name."""

import dataclasses

import jax
import numpy as np
import pytest
from tiny import MODEL, random_params

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS
from transformer_jax.cli import score
from transformer_jax.config import ObjectiveConfig, TokenizerConfig
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.data.codecs.pair import CODECS, TokenizerPair
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.mutations import mutation_scores
from transformer_jax.models.build import build

CODEC = CODECS["residues"].train(TokenizerConfig(), [], ("<mask>",))
MASK = CODEC.special["mask"]
CONFIG = dataclasses.replace(
    MODEL, architecture="encoder", num_decoder_layers=6, residual="pre_norm", positions="none",
    relative_positions="rope", token_dropout=MASK,
)  # fmt: skip
SEQUENCE = "MKTAYIAKQR"


@pytest.fixture(scope="module")
def loaded():
    model = build(CONFIG, CODEC.size, CODEC.size)
    return Loaded(
        model, random_params(model), TokenizerPair(CODEC, CODEC),
        ObjectiveConfig("masked_lm", window=7),
    )  # fmt: skip


def by_hand(loaded, window: str, place: int, ends: bool) -> np.ndarray:
    """Return the log-probabilities of pieces at a place of a window, with BOS before it."""
    ids = [BOS, *CODEC.encode([window], eos=ends)[0]]
    ids[1 + place] = MASK
    array = np.array([ids], np.int32)
    side = Side(array, np.arange(len(ids), dtype=np.int32)[None], np.ones_like(array))
    batch = jax.tree.map(jax.numpy.asarray, Batch(side, None, {}))
    logits = loaded.model.outputs(loaded.params, batch, None)["tokens"].logits()
    return np.asarray(jax.nn.log_softmax(logits))[0, 1 + place]


def test_scores_are_those_of_a_masked_place(loaded):
    """Windows of 7 positions hold BOS and six letters; the second one ends with EOS."""
    found = mutation_scores(loaded, SEQUENCE, ["R10A", "M1W", "A4G", "A4C"])
    cases = [(SEQUENCE[6:], 3, True, "RA"), (SEQUENCE[:6], 0, False, "MW"),
             (SEQUENCE[:6], 3, False, "AG"), (SEQUENCE[:6], 3, False, "AC")]  # fmt: skip
    for score_, (window, place, ends, letters) in zip(found, cases, strict=True):
        nats = by_hand(loaded, window, place, ends)
        wild, mutant = map(CODEC.piece_id, letters)
        assert score_ == pytest.approx(nats[mutant] - nats[wild], abs=1e-5)
    assert mutation_scores(loaded, SEQUENCE, []) == []
    assert mutation_scores(loaded, SEQUENCE, ["A4A"]) == [0.0]
    assert EOS not in (CODEC.piece_id(letter) for letter in SEQUENCE)


@pytest.mark.parametrize(
    ("mutation", "message"),
    [
        ("23", "write the letter, its number and the new letter, as in A23G"),
        ("A11G", "the sequence has letters 1 to 10"),
        ("M0G", "the sequence has letters 1 to 10"),
        ("A3G", "letter 3 of the sequence is 'T'; numbers count from 1"),
    ],
)
def test_a_mutation_of_another_sequence_is_refused(loaded, mutation, message):
    with pytest.raises(UserError, match=f"^mutation '{mutation}': {message}"):
        mutation_scores(loaded, SEQUENCE, ["A4G", mutation])


def test_other_models_and_codecs_are_refused(loaded):
    other = dataclasses.replace(loaded, objective=ObjectiveConfig("language_model"))
    with pytest.raises(UserError, match="'language_model': such a model does not predict a single"):
        mutation_scores(other, SEQUENCE, ["A4G"])
    words = CODECS["words"].train(TokenizerConfig(vocab_size=6), ["MKTA a"], ("<mask>",))
    other = dataclasses.replace(loaded, codecs=TokenizerPair(words, words))
    with pytest.raises(UserError, match="does not make each letter a piece"):
        mutation_scores(other, "MKTA", ["A4G"])


def test_the_command_reads_one_sequence(tmp_path):
    for name, content in (("a.fasta", ">a\nMKT\nAY\n"), ("a.txt", "MKTAY\n")):
        (tmp_path / name).write_text(content)
        assert score._sequence(tmp_path / name) == "MKTAY"
    (tmp_path / "b.fa").write_text(">a\nM\n>b\nK\n")
    with pytest.raises(UserError, match=r"b\.fa: has 2 sequences; --mutations are of one"):
        score._sequence(tmp_path / "b.fa")
