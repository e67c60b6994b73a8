"""Imported tokenizers without some special pieces: no id stands for a missing one."""

import dataclasses
import json
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import Special
from transformer_jax.config import DataConfig, DecodingConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.codecs.codec import special_of
from transformer_jax.data.codecs.imported import Imported
from transformer_jax.data.objectives import objective_named
from transformer_jax.data.store.encoding import encode_words
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding.batching.rows import request_of
from transformer_jax.decoding.batching.stream import Sentence
from transformer_jax.decoding.search.request import Form
from transformer_jax.decoding.search.state import blank, forced_tokens
from transformer_jax.decoding.text.prompts import PROMPTS
from transformer_jax.decoding.text.score import _units
from transformer_jax.decoding.text.searching import make_search
from transformer_jax.decoding.text.streaming import Alone
from transformer_jax.export.stablehlo import _padding

WORDS = {"a": 0, "b": 1, "c": 2, "<end>": 3, "[MASK]": 4, "<extra_id_0>": 5, "<extra_id_1>": 6}
LM = ObjectiveConfig("language_model", window=4)


def imported(special, begins=()) -> Imported:
    tokenizer = Tokenizer(models.WordLevel(WORDS))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Imported.of(tokenizer.to_str(), special, len(WORDS), begins)


LACKING = {"eos": 3, "pad": 3, "mask": 4, "extra_id_0": 5, "extra_id_1": 6}


@pytest.mark.parametrize("bos", [None, 1])
@pytest.mark.parametrize("document", ["line", "joined"])
@pytest.mark.parametrize(
    "name",
    ["language_model", "text_prefix_lm", "permutation_lm", "bidirectional_lm", "masked_lm",
     "span_corruption", "text_continuation", "translate", "prefix_lm", "classify"],
)  # fmt: skip
def test_every_id_of_a_batch_is_that_of_a_piece(name, document, bos):
    """Or what needs the missing BOS is refused with its items, before anything is compiled."""
    fields = {"sentinels": 2, "noise_density": 0.3} if name == "span_corruption" else {}
    if document == "joined":
        if name not in ("language_model", "text_prefix_lm", "masked_lm"):
            return
        fields |= {"document": "joined"}
    fields |= {} if name in ("translate", "prefix_lm") else {"window": 6}
    config = ObjectiveConfig(name, **fields)
    codec = imported(LACKING | ({} if bos is None else {"bos": bos}))
    objective, texts = objective_named(name), ["a b c a", "", "c", "b b"]
    frame = objective.frame(config)
    sides = Ragged.from_lists(codec.encode(texts, frame.bos, frame.eos))
    src = sides if name in ("translate", "prefix_lm", "classify") else Ragged.from_lists([])
    store = TokenStore(src, sides, special_of(codec))
    needs = name not in ("language_model", "text_prefix_lm", "permutation_lm", "bidirectional_lm")
    if bos is None and needs:
        with pytest.raises(UserError, match=r"^the tokenizer has no BOS, with which this model's"):
            objective.items(store, config, codec)
        return
    items = objective.items(store, config, codec)
    pairs = objective.select(items, DataConfig(max_length=12)).pairs
    assert len(pairs)
    batch = objective.examples(items, one_per_row(pairs), len(pairs), 12, 12)
    for side in batch[:2]:
        if side is not None:
            assert {*side.inputs.ravel().tolist()} <= {*range(len(WORDS))}
    if name == "language_model":  # its documents begin with their first piece
        assert batch.tgt.inputs[0, 0] == WORDS["a"]


def test_imports_of_before_are_read_as_before():
    """They wrote -1 for a missing piece, and BOS before every document."""
    old = json.loads(imported({"pad": -1, "bos": 1, "eos": 3, "unk": -1}).model)
    del old["begins"]
    codec = Imported(json.dumps(old).encode())
    assert codec.special == {"bos": 1, "eos": 3}
    assert special_of(codec) == Special(pad=3, bos=1, eos=3)
    assert codec.encode(["c"], bos=True) == [[1, 2, 3]]
    old["special"]["bos"] = -1
    codec = Imported(json.dumps(old).encode())
    with pytest.raises(UserError, match=r"^the tokenizer has no BOS, with which"):
        codec.encode(["c"], bos=True)
    old["special"]["eos"] = -1
    codec = Imported(json.dumps(old).encode())
    with pytest.raises(UserError, match=r"^the tokenizer has no EOS, with which"):
        make_search(DecodingConfig(), 1, (), special_of(codec))
    assert codec.decode([2, 0]) == "c a"


def test_an_empty_prompt_is_bos_or_refused():
    """As in transformers, whose generate without a prompt begins with bos_token_id."""
    read = PROMPTS["language_model"].read
    assert read(imported({"eos": 3, "bos": 1}), "", LM, None) == [1]
    assert read(imported({"eos": 3, "bos": 1}), "c", LM, None) == [2]
    assert read(imported({"eos": 3, "bos": 1}, [1]), "c", LM, None) == [1, 2]
    with pytest.raises(UserError, match=r"^prompt: is empty, and the tokenizer has no BOS"):
        read(imported({"eos": 3}), "", LM, None)


def test_a_word_without_pieces_is_unknown_or_padding():
    assert encode_words(imported({"eos": 3, "pad": 4}), ["", "c"]) == [[4], [2]]
    assert encode_words(imported({"eos": 3, "pad": 4, "unk": 6}), ["", "c"]) == [[6], [2]]


@pytest.mark.parametrize(
    ("begins", "units"), [([], (len(" b c") + 1,) * 2), ([1], (len("a b c") + 1,) * 2)]
)
def test_characters_of_a_score_are_those_of_its_predicted_pieces(begins, units):
    """Without BOS the first piece is not predicted."""
    codec = imported({"eos": 3, "bos": 1}, begins)
    (whole,) = codec.encode(["a b c"], bos=True)
    assert codec.decode(whole) == "a b c"
    assert _units(codec, "a b c", whole, whole[1:], eos=True) == units


def test_a_streamed_text_ends_with_eos_though_eos_is_padding(monkeypatch):
    """As in imported models without PAD."""
    special = Special(pad=3, bos=None, eos=3)
    search = make_search(DecodingConfig(beam_size=1), 1, (), special)
    done = SimpleNamespace(
        tokens=np.array([[[1, 2, 0, 3, 3]]]), position=[4], drafts=None, done=np.array([True])
    )
    alone = Alone((), "log_mean", [], search, Sentence([1], 5))
    monkeypatch.setattr(Alone, "begin", lambda self: None)
    monkeypatch.setattr(Alone, "_programs", (None, lambda *_: done, None))
    assert [*alone.pieces()] == [2, 0, 3]


@pytest.mark.parametrize("piece", [0, 4])
def test_a_prefix_may_contain_any_piece(piece):
    """Piece 0 too, which is an ordinary one in many imported models."""
    sentence = Sentence([1, 2], 5, prefix=[piece, 2])
    request, _ = request_of([[(0, sentence)]], 1, 2, Form(prefix=3))
    state = blank(request, 1, 5, None)
    for position, wanted in enumerate([piece, 2, None]):
        known, token = forced_tokens(dataclasses.replace(state, position=jnp.full(1, position)))
        assert (int(token[0]) if known[0] else None) == wanted


@pytest.mark.parametrize(
    ("special", "order", "begun", "pad"),
    [
        (Special(), "all", True, 0),
        (Special(3, 1, 3), "causal", True, None),  # as in GPT-2, which only looks back
        (Special(1, 1, 3), "causal", True, None),
        (Special(1, 1, 3), "all", False, 1),  # a source in T5, which begins with no BOS
        (Special(3, 1, 3), "all", False, "refused"),
        (Special(1, 1, 3), "ranked", True, "refused"),
    ],
)
def test_no_piece_of_a_text_is_taken_for_padding(special, order, begun, pad):
    if pad == "refused":
        with pytest.raises(UserError, match=rf"^pad_token_id={special.pad}: also begins or ends"):
            _padding(special, order, begun)
    else:
        assert _padding(special, order, begun) == pad
