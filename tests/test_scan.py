"""SCAN's files become columns, and its cuts hold out what the official ones do."""

import gzip

import pytest
from test_benchmarks import PLACE

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import load_config
from transformer_jax.config.convert import parse
from transformer_jax.data.sources import text_files


@pytest.fixture
def scan(monkeypatch):
    monkeypatch.syspath_prepend(PLACE / "studies")
    import scan

    return scan


OURS = "look\tI_LOOK\njump\tI_JUMP\nwalk and look\tI_WALK I_LOOK\n"
THEIRS = "IN: look OUT: I_LOOK\nIN: jump OUT: I_JUMP\nIN: walk and look OUT: I_WALK I_LOOK\n"


def test_both_forms_of_its_files_are_read(scan, tmp_path):
    (tmp_path / "one.txt").write_text(THEIRS)
    (tmp_path / "other.tsv.gz").write_bytes(gzip.compress(OURS.encode()))
    wanted = [("look", "I_LOOK"), ("jump", "I_JUMP"), ("walk and look", "I_WALK I_LOOK")]
    assert scan.read(tmp_path / "one.txt") == scan.read(tmp_path / "other.tsv.gz") == wanted


@pytest.mark.parametrize(
    "line", ["jump I_JUMP", "jump\t", "\tI_JUMP", "IN: jump I_JUMP", "jump\tI_JUMP I_FLY"]
)
def test_a_bad_line_is_named(scan, tmp_path, line):
    (tmp_path / "x.tsv").write_text(f"{OURS}{line}\n")
    with pytest.raises(UserError, match=r"x\.tsv:4: must be a command, a TAB and its actions"):
        scan.read(tmp_path / "x.tsv")


def test_cuts_part_their_rows_without_overlap(scan):
    pairs = [(f"walk {i}", " ".join(["I_WALK"] * i)) for i in range(1, 23)]
    short, long = scan.by_length(pairs)
    assert short + long == pairs
    assert max(len(actions.split()) for _, actions in short) == 15
    words = [("look", "I_LOOK"), *pairs, ("look twice", "I_LOOK I_LOOK")]
    train, validation = scan.by_word(words)
    assert validation == [words[-1]]
    assert {command for command, _ in train if "look" in command} == {"look"}
    assert train.count(words[0]) == (len(pairs)) // 9


def test_its_configs_part_training_from_validation(tmp_path):
    """Every row of a file is in one of the two, and in one only."""
    rows = [f"walk\t{' '.join(['I_WALK'] * i)}\n" for i in range(1, 42)]
    (tmp_path / "length.train.tsv").write_text("".join(rows))
    data = parse(load_config("configs/scan.py:length-absolute")).data
    data = data.__class__(**{**vars(data), "directory": str(tmp_path)})
    parts = [list(text_files.load(data, split)[1]) for split in ("train", "validation")]
    assert len(parts[1]) == 3
    assert sorted([*parts[0], *parts[1]]) == sorted(row.rstrip().split("\t")[1] for row in rows)
