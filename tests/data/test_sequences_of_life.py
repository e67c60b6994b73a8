"""Proteins and DNA: FASTA files, their alphabets, and a run's refusal of other letters."""

import dataclasses
import gzip

import numpy as np
import pytest
from tiny import RUN

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS, PAD
from transformer_jax.config import (
    DataConfig,
    ObjectiveConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.data import sources
from transformer_jax.data.batches.batch import one_per_row
from transformer_jax.data.codecs.letters import Nucleotides, Residues
from transformer_jax.data.codecs.pair import CODECS, expected_sizes, train_pair
from transformer_jax.experiments.prepare import prepare
from transformer_jax.runs.workdir import WorkDir

FASTA = """; a comment
>sp|P1|ONE the first
MALW
mrll
  PL PL*

>two
ACDX
>three A third
GG"""
ROWS = [("MALWmrllPLPL", "sp|P1|ONE"), ("ACDX", "two"), ("GG", "three")]
LM = ObjectiveConfig("masked_lm", window=8)


def config(directory, *train: str, **more) -> DataConfig:
    more = {"columns": ("target=sequence",)} | more
    return DataConfig(directory=str(directory), train=train, **more)


@pytest.mark.parametrize("ending", ["fasta", "fa", "faa.gz", "FNA"])
def test_wrapped_lines_are_one_sequence(tmp_path, ending):
    """Headers, comments, blanks, spaces, a final star; CRLF ends lines as LF does."""
    content = FASTA.replace("\n", "\r\n" if ending == "fa" else "\n").encode()
    packed = gzip.compress(content) if ending.endswith("gz") else content
    (tmp_path / f"train.{ending}").write_bytes(packed)
    found = sources.load(config(tmp_path, f"train.{ending}"), "train", LM)
    assert [*found.tgt] == [sequence for sequence, _ in ROWS]


def test_names_are_columns_too(tmp_path):
    (tmp_path / "a.fasta").write_text(FASTA)
    both = config(tmp_path, "a.fasta", columns=("source=sequence", "target=id"))
    found = sources.load(both, "train")
    assert [*zip(found.src, found.tgt, strict=True)] == ROWS
    whole = config(tmp_path, "a.fasta", columns=("source=sequence", "target=description"))
    assert sources.load(whole, "train").tgt[0] == "sp|P1|ONE the first"


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("\nACD\n>a\nA", ("target=sequence",), r"a\.fa:2: is before the first line .*'>NAME'"),
        (">a\n>b\nA", ("target=sequence",), r"a\.fa:1: no sequence follows '>a'; write it"),
        (">a\nA\n>b\n*\n", ("target=sequence",), r"a\.fa:3: no sequence follows '>b'"),
        (">a\nA", ("target=name",), r"no column 'name', .*'sequence', 'id', .*target=COLUMN"),
        (b">a\nA\n\xff", ("target=sequence",), r"a\.fa:3: not UTF-8"),
    ],
)
def test_malformed_files_are_refused_by_line(tmp_path, content, columns, message):
    raw = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "a.fa").write_bytes(raw)
    with pytest.raises(UserError, match=message):
        sources.load(config(tmp_path, "a.fa", columns=columns), "train", LM)


@pytest.mark.parametrize(("word", "kind"), [("residues", Residues), ("nucleotides", Nucleotides)])
def test_letters_become_ids_and_back(word, kind):
    codec = CODECS[word].train(TokenizerConfig(), [], ("<mask>",))
    (ids,) = codec.encode([kind.alphabet.lower()], bos=True)
    assert ids == [BOS, *range(4, 4 + len(kind.alphabet)), EOS]
    assert codec.decode([*ids, PAD]) == kind.alphabet
    assert codec.special["mask"] == codec.size - 1 == codec.piece_id("<mask>")
    assert kind(codec.model).digest == codec.digest
    assert codec.decode([4, codec.special["mask"], 5]) == kind.alphabet[:2]
    with pytest.raises(ValueError, match="not the alphabet of this version"):
        kind(codec.model.replace(b"A", b"J"))
    with pytest.raises(UserError, match=r"^letter 3 is 'J', which is no .*: write [XN] for one"):
        codec.encode(["AcjJ"])


def test_residues_are_in_the_order_of_esm():
    """Their ids are ESM's, of which four special pieces are the first, too."""
    codec = CODECS["residues"].train(TokenizerConfig(), [])
    assert codec.pieces(range(4, 9)) == ["L", "A", "G", "V", "S"]
    assert codec.piece_id("C") == 23


@pytest.fixture
def experiment(tmp_path):
    """Return one of masked residues in FASTA files."""
    for name in ("train", "validation"):
        (tmp_path / f"{name}.fasta").write_text(FASTA)
    model = dataclasses.replace(
        RUN.model, architecture="encoder", num_decoder_layers=6, token_dropout=31
    )
    data = config(
        tmp_path, "train.fasta", validation=("validation.fasta",), max_length=8,
        tokens_per_batch=64, num_buckets=1,
    )  # fmt: skip
    return dataclasses.replace(
        RUN, model=model, data=data, objective=LM, tgt=SideConfig("residues"),
        tokenizer=TokenizerConfig(),
    )  # fmt: skip


def test_a_run_reads_them_in_crops(experiment, tmp_path):
    found = prepare(experiment, WorkDir(tmp_path / "run"))
    assert found.train.src.lengths.tolist() == [7, 6, 5, 3]  # of 13, 5 and 3 with EOS
    assert expected_sizes(experiment) == found.tokenizers.sizes == (32, 32)


def test_a_run_names_the_place_of_a_letter_that_is_none(experiment, tmp_path):
    (tmp_path / "validation.fasta").write_text(">one\nAC\n>two\nAC\nJA\n")
    with pytest.raises(UserError, match=r"validation\.fasta:3: letter 3 is 'J', which is no resid"):
        prepare(experiment, WorkDir(tmp_path / "run"))


def test_residues_are_words_that_are_tagged(experiment, tmp_path):
    """What is not resolved belongs to the word before it, and the first of a word is labelled."""
    for name in ("train", "validation"):
        (tmp_path / f"{name}.sequence").write_text("AC D\nW Y\n")
        (tmp_path / f"{name}.structure").write_text("H E\nC C\n")
    data = dataclasses.replace(
        experiment.data, train=("train",), validation=("validation",), columns=(),
        source_language="sequence", target_language="structure",
    )  # fmt: skip
    tagged = dataclasses.replace(
        experiment, data=data, src=SourceConfig("residues"), tgt=SideConfig("labels"),
        model=dataclasses.replace(experiment.model, token_dropout=None),
        objective=ObjectiveConfig("tag", window=8), tokenizer=TokenizerConfig(joint=False),
    )  # fmt: skip
    found = prepare(tagged, WorkDir(tmp_path / "run"))
    batch = found.objective.examples(found.train, one_per_row(np.arange(2)), 2, 8, 0)
    residues, (labels, weight) = found.tokenizers.src, batch.targets["tags"]
    assert [residues.decode(row[1:]) for row in batch.src.inputs] == ["ACD", "WY"]
    assert weight.tolist() == [[0, 1, 0, 1, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0, 0, 0]]
    assert found.tokenizers.tgt.decode(labels[weight > 0]) == "H E C C"
    (tmp_path / "train.sequence").write_text("A C\nW J\n")
    with pytest.raises(UserError, match=r"train\.sequence:2: letter 2 is 'J', which is no resid"):
        prepare(tagged, WorkDir(tmp_path / "run"))


@pytest.mark.parametrize(
    ("codec", "dropped", "message"),
    [("residues", 30, "the id of <mask> is 31; set it to 31"),
     ("characters", 31, r"the id of <mask> is \d+; set it to \d+")],
)  # fmt: skip
def test_token_dropout_must_zero_the_mask(experiment, tmp_path, codec, dropped, message):
    other = dataclasses.replace(
        experiment, tgt=SideConfig(codec),
        model=dataclasses.replace(experiment.model, token_dropout=dropped),
    )  # fmt: skip
    with pytest.raises(UserError, match=rf"^config\.model\.token_dropout={dropped}: {message}"):
        prepare(other, WorkDir(tmp_path / "run"))


def test_both_sides_may_be_letters():
    pair = train_pair(TokenizerConfig(joint=False), ["A"], ["C"], ("nucleotides", "residues"))
    assert pair.sizes == (22, 31)
