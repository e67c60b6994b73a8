"""Characters after tags: the codec, columns joined into such texts, and tags without an order."""

import dataclasses
import gzip
from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import MODEL, random_params

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import EOS, UNK
from transformer_jax.config import DataConfig, TokenizerConfig
from transformer_jax.data import sources
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.data.codecs.tagged import Tagged, train
from transformer_jax.models.build import build
from transformer_jax.nn.positions import without_order

TEXTS = ["finnish\tN;PL\tkala", "finnish\tV;3\t3 k", "irish\tN\tbád"]
CODEC = train(TokenizerConfig(), TEXTS)


def test_tags_and_characters_are_pieces():
    """Also where both are spelled alike, as 3 is; separators do not matter."""
    ids = CODEC.encode(TEXTS)
    assert CODEC.pieces(ids[1]) == ["[finnish]", "[V]", "[3]", "3", " ", "k", "</s>"]
    assert CODEC.tags == 6
    assert sorted(i for i in {*chain(*ids)} if 4 <= i < 4 + CODEC.tags) == [*range(4, 10)]
    for found in ids:
        assert CODEC.encode([CODEC.decode(found)]) == [found]
    assert CODEC.decode(ids[0]) == "finnish;N;PL\tkala"
    assert CODEC.decode(CODEC.encode(["kala"])[0]) == "kala"  # no tags
    assert CODEC.encode(["welsh\tN\tk?"]) == [
        [UNK, CODEC.piece_id("[N]"), CODEC.piece_id("k"), UNK, EOS]
    ]
    again = Tagged(CODEC.model)
    assert (again.digest, again.encode(TEXTS)) == (CODEC.digest, ids)
    with pytest.raises(ValueError, match="not lists"):
        Tagged(CODEC.model[:-1])


@pytest.mark.parametrize("text", ["finnish\tN;;PL\tkala", "\tN\tkala", "finnish\tN\t", "N\t "])
def test_empty_tags_and_lemmas_are_refused(text):
    with pytest.raises(UserError, match="tags, with semicolons or TABs between, a TAB and char"):
        CODEC.encode([text])


def test_columns_of_a_side_are_joined_by_tabs(tmp_path):
    rows = ["finnish\tkala\tN;PL\tkalat", "irish\tbád\tN;GEN\tbáid", "irish\tcú\tN\tcú"]
    with gzip.open(tmp_path / "train.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(rows))
    config = DataConfig(
        directory=str(tmp_path), columns=("source=1", "source=3", "source=2", "target=4"),
        train=("train.tsv.gz[!::2]",), validation=("bad.tsv",),
    )  # fmt: skip
    corpus = sources.load(config, "train")
    assert [*corpus.src] == ["irish\tN;GEN\tbád"]
    assert [*corpus.tgt] == ["báid"]
    (tmp_path / "bad.tsv").write_text("\n".join([rows[0], "irish\tbád\tbáid"]))
    with pytest.raises(UserError, match=r"bad\.tsv:2: has 3 columns, but the first row 4"):
        sources.load(config, "validation")


def test_positions_count_what_has_an_order():
    """Within each segment; tags stand anywhere."""
    ids = np.array([[4, 5, 9, 8, EOS, 7, 5, 9, EOS, 0], [9, 4, 7, 5, EOS, 0, 0, 0, 0, 0]])
    pos = np.array([[0, 1, 2, 3, 4, 0, 1, 2, 3, 0], [0, 1, 2, 3, 4, 0, 0, 0, 0, 0]])
    found = np.asarray(without_order(ids, pos, 2))
    assert found[0, :9].tolist() == [0, 0, 1, 2, 3, 1, 0, 2, 3]
    assert found[1, :5].tolist() == [1, 0, 2, 0, 3]
    assert np.asarray(without_order(ids[1:, :5], pos[1:, :5], 0))[0].tolist() == [1, 2, 3, 4, 4]


@pytest.mark.parametrize("relative", ["none", "rope"])
def test_the_order_of_tags_changes_nothing(relative):
    """And the same model with the positions given by hand agrees."""
    positions = "sinusoidal" if relative == "none" else "none"
    config = dataclasses.replace(
        MODEL, positions=positions, relative_positions=relative, tied_embeddings="decoder"
    )
    free = dataclasses.replace(config, unordered_pieces=3)
    model, plain = (build(c, 12, 12, single=True) for c in (free, config))
    params = random_params(plain, 0)
    one = np.array([[4, 5, 6, 8, 9, EOS]], np.int32)
    other = np.array([[6, 4, 5, 8, 9, EOS]], np.int32)
    pos, seg = np.arange(6, dtype=np.int32)[None], np.ones((1, 6), np.int32)
    by_hand = np.array([[0, 0, 0, 1, 2, 3]], np.int32)
    tgt = Side(one[:, :4], pos[:, :4], seg[:, :4])

    @jax.jit
    def logits(params):
        sides = [(model, one, pos), (model, other, pos), (plain, one, by_hand), (plain, one, pos)]
        return [
            of.outputs(params, jax.tree.map(jnp.asarray, Batch(Side(ids, at, seg), tgt, {})), None)[
                "tokens"
            ].logits()
            for of, ids, at in sides
        ]

    first, second, given, ordered = map(np.asarray, logits(params))
    assert np.abs(first - second).max() < 1e-5
    assert np.abs(first - given).max() < 1e-6
    assert np.abs(first - ordered).max() > 1e-3
