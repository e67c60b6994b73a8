"""Linearised trees: their codec, and malformed ones, rejected with file and line."""

import json

import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import EOS, UNK
from transformer_jax.config import DataConfig, Experiment, ModelConfig, SideConfig, TokenizerConfig
from transformer_jax.data import sources
from transformer_jax.data.codecs.trees import Trees, check_pairs, fault, train
from transformer_jax.experiments.prepare import prepare
from transformer_jax.runs.workdir import WorkDir

TREES = ["(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S", "(FRAG XX )FRAG", ""]
CONFIG = TokenizerConfig()


def test_trees_round_trip():
    codec = train(CONFIG, TREES)
    assert codec.size == 4 + 5 + 2 * 4
    assert [codec.decode(ids) for ids in codec.encode(TREES)] == TREES
    assert codec.encode([TREES[1]])[0] == [
        *map(codec.piece_id, ("(FRAG", "XX1", ")FRAG")), EOS
    ]  # fmt: skip
    assert codec.encode(["(PP XX )PP"])[0] == [UNK, codec.piece_id("XX1"), UNK, EOS]
    assert codec.decode([UNK, 4, UNK, EOS]) == "XX"
    again = Trees(codec.model)
    assert (again.digest, again.encode(TREES)) == (codec.digest, codec.encode(TREES))


def test_words_beyond_the_last_number_share_it():
    codec = train(CONFIG, ["(S XX XX )S"])
    long = "(S XX (S XX XX )S XX )S"
    assert codec.pieces(codec.encode([long], eos=False)[0]) == [
        "(S", "XX1", "(S", "XX2", "XX2", ")S", "XX2", ")S"
    ]  # fmt: skip
    assert codec.decode(codec.encode([long])[0]) == long


def test_old_codecs_without_word_numbers_are_loaded():
    old = {"special": train(CONFIG, TREES).special, "lowercase": False}
    codec = Trees(json.dumps(old | {"words": ["XX", "(S", ")S"]}).encode())
    assert codec.encode(["(S XX XX )S"]) == [[5, 4, 4, 6, EOS]]
    assert codec.decode([5, 4, 4, 6]) == "(S XX XX )S"


def test_both_brackets_of_a_label_are_pieces():
    """Their order does not depend on that of the training text: equal sets give equal codecs."""
    assert train(CONFIG, TREES).model == train(CONFIG, TREES[::-1]).model
    pieces = train(CONFIG, TREES).pieces(range(9, 17))
    assert pieces == ["(FRAG", ")FRAG", "(NP", ")NP", "(S", ")S", "(VP", ")VP"]


FAULTS = {
    "(S XX": "'(S is never closed'",
    "(S (NP XX )S )NP": "piece 4, ')S', is where ')NP' must be",
    "(S XX )S )S": "piece 4, ')S', is after the end",
    "(S XX )S (S XX )S": "piece 4, '(S', is after the end",
    ")S XX": "piece 1, ')S', closes no bracket",
    "(S (NP )NP XX )S": "piece 3, ')NP', closes an empty bracket",
    "(S the )S": "piece 2, 'the', is neither a bracket nor XX",
    "XX": "piece 1, 'XX', is outside all brackets",
}


@pytest.mark.parametrize(("tree", "words"), FAULTS.items(), ids=FAULTS)
def test_malformed_trees_are_rejected(tree, words):
    assert words.strip("'") in fault(tree.split())
    with pytest.raises(UserError, match=r"^config\.data\.train: tree 2: .*opened and closed"):
        train(CONFIG, ["(S XX )S", tree])


def test_trees_must_have_as_many_words_as_their_sentences():
    with pytest.raises(UserError, match=r"^x:2: the tree has 1 XX, but its sentence 2 words"):
        check_pairs(["a", "a b"], ["(S XX )S"] * 2, lambda number: f"x:{number}")
    with pytest.raises(UserError, match="have no brackets"):
        train(CONFIG, ["", ""])


@pytest.mark.parametrize("split", ["train", "validation"])
def test_errors_name_the_file_and_line(split, tmp_path):
    """Before anything is trained or written."""
    for part in ("train", "validation"):
        (tmp_path / f"{part}.text").write_text("a b c d e\na\n")
        (tmp_path / f"{part}.tree").write_text(f"{TREES[0]}\n{TREES[1]}\n")
    (tmp_path / f"{split}.tree").write_text(f"{TREES[0]}\n(S XX\n")
    data = DataConfig(directory=str(tmp_path), source_language="text", target_language="tree")
    experiment = Experiment(
        data=data, tgt=SideConfig("trees"), model=ModelConfig(tied_embeddings="none"),
        tokenizer=TokenizerConfig(vocab_size=12, joint=False),
    )  # fmt: skip
    assert len(sources.load(data, split)) == 2
    with pytest.raises(UserError, match=rf"{split}\.tree:2: \(S is never closed; each bracket"):
        prepare(experiment, WorkDir(tmp_path / "run"))
