"""A search with a shortlist acts as if no other pieces existed, and nothing else changes."""

import functools
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoding import plainly
from decoding.lines import BEAM, GREEDY, parts
from decoding.plainly import assert_same, beam, greedy, run
from decoding.test_beam import ASKING, LARGER, PLAIN
from decoding.test_lines import LINES, ToyModel
from decoding.toy import Toy
from tiny import RECURRENT, VARIANTS, VOCAB, Stepping, alone, make, random_store

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import UNK, Special
from transformer_jax.config import DecodingConfig
from transformer_jax.data.batches.batch import Batch
from transformer_jax.data.store.lexicon import Lexicon
from transformer_jax.decoding.search.beam import BeamSearch
from transformer_jax.decoding.search.columns import columns_of, marked, pieces_of
from transformer_jax.decoding.search.sampling import Sampling
from transformer_jax.decoding.text.translate import Translator

ALL = list(range(LARGER.vocab))
SEARCHES = {
    "beam": BeamSearch.of(DecodingConfig(beam_size=3, no_repeat_ngram=2), 3, (5,)),
    "greedy": Sampling.of(DecodingConfig(beam_size=1, no_repeat_ngram=1), forbidden=(4,)),
    "samples": Sampling.of(DecodingConfig(search="sample", num_samples=3, top_p=0.7, top_k=4)),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("special", [Special(), Special(0, 1, 4)], ids=["ours", "imported"])
def test_a_shortlist_of_all_pieces_changes_nothing(name, special):
    """Results are bitwise identical, whatever the ids of the special pieces."""
    search = replace(SEARCHES[name], special=special)
    some = PLAIN + ASKING if special == Special() else PLAIN
    cut = _uncut if special != Special() else run
    listed = [s._replace(shortlist=ALL) for s in some]
    assert cut(search, listed, LARGER) == cut(search, some, LARGER)


def _uncut(search, sentences, toy):
    """Return all that is found, uncut: `plainly.run` cuts texts at our own EOS."""
    found = plainly.completed(plainly.arrays(sentences, 3), search, toy, 5)
    return [np.asarray(x).tolist() for x in found]


@dataclass(frozen=True)
class Among:
    """A toy restricted to some pieces, in plain Python."""

    toy: Toy
    pieces: tuple[int, ...]

    @property
    def vocab(self) -> int:
        return self.toy.vocab

    def log_probs(self, source, prefix) -> np.ndarray:
        """Return the log-probability of each piece after a prefix."""
        whole = self.toy.log_probs(source, prefix)
        return whole - np.log(np.exp(whole[list(self.pieces)]).sum())


def listed(sentence):
    """Return a sentence with its own shortlist, which has its prefix, and the pieces not in it."""
    others = [4 + (sum(sentence.ids) + i) % 3 for i in range(3)]
    own = [*dict.fromkeys([*range(UNK + 1), *sentence.prefix, *others])][: UNK + 3]
    return sentence._replace(shortlist=sorted(own)), tuple({*ALL} - {*own})


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["beam", "greedy"])
def test_a_shortlist_acts_as_the_whole_vocabulary(name):
    """The search matches its reference for a model that has only the listed pieces."""
    config = DecodingConfig(beam_size=3 if name == "beam" else 1, no_repeat_ngram=2)
    search = BeamSearch.of(config, 3) if name == "beam" else Sampling.of(config)
    some = [listed(s) for s in PLAIN + ASKING]
    plain = functools.partial(beam, wanted=3) if name == "beam" else greedy
    expected = [plain(Among(LARGER, tuple(s.shortlist)), config, absent, s) for s, absent in some]
    found = run(search, [s for s, _ in some], LARGER)
    assert_same(found, expected)
    texts = [text for row in found for _, text in row]
    assert texts != [text for row in run(search, PLAIN + ASKING, LARGER) for _, text in row]


def test_columns_of_inverts_pieces_of():
    """A piece that is not in a list has no column."""
    lists = jnp.asarray([[0, 1, 2, 7, 9], [0, 1, 2, 3, 8]])
    found = columns_of(lists, jnp.asarray([[9, 3, 0], [3, 9, 2**31 - 1]]))
    np.testing.assert_array_equal(found, [[4, 5, 0], [3, 5, 5]])
    columns = jnp.asarray([[4, 3], [3, 0]])
    np.testing.assert_array_equal(columns_of(lists, pieces_of(lists, columns)), columns)


STEPPING = {
    "encoder-decoder": next(iter(VARIANTS.values())),
    "scaled logits": VARIANTS["t5"],
    "capped logits": VARIANTS["gemma"],
    "decoder": VARIANTS["decoder"],
    "recurrent": RECURRENT["luong"],
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", STEPPING)
def test_logits_are_those_of_the_listed_pieces(name):
    """A step's logits are columns of the full logits, in the list's order, for every hypothesis."""
    model, params = make(STEPPING[name])
    src = jax.device_put(alone(random_store([(5, 1), (3, 1)]), 2, 6, 1).src)
    batch = Batch(src, None, {})
    if model.config.architecture == "decoder":
        batch = Batch(None, src, {})
    lists = np.sort(np.random.default_rng(0).permuted([range(VOCAB)] * 2, axis=1)[:, :7])
    tokens, places = jnp.asarray([[[4], [9]], [[7], [5]]], jnp.int32), jnp.zeros((2, 1), jnp.int32)
    stepper, room = Stepping(model, params), {"width": 2, "length": 4}
    given = tokens, places, jnp.ones(2, bool)
    whole, *_ = stepper.step(stepper.start(batch, **room), *given)
    state = stepper.start(batch, **room, shortlist=jnp.asarray(lists, jnp.int32))
    found, *_ = stepper.step(stepper.grow(state, src_length=8, length=6), *given)
    expected = np.take_along_axis(np.asarray(whole), lists[:, None, None], axis=3)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@functools.cache
def lexicon() -> Lexicon:
    """Return a random lexicon."""
    size, chance = parts()[2].tgt.size, np.random.default_rng(0)
    pieces = np.concatenate([chance.permutation(size)[:6] for _ in range(size)])
    starts = np.arange(size + 1) * 6
    empty = chance.random(size).astype(np.float32)
    return Lexicon("", empty, starts, pieces, chance.random(len(pieces)))


def translated(config, lines=LINES, **given):
    translator = Translator(ToyModel(), parts()[2], config, lexicon=lexicon())
    return [found[0] for found in translator.hypotheses((), lines, **given)]


@pytest.mark.thorough
@pytest.mark.parametrize("config", [BEAM, GREEDY], ids=["beam", "greedy"])
def test_translations_have_only_listed_pieces(config):
    """With all pieces listed, they are those without a list; with fewer, they have no other pieces,
    whatever else is in the batch.
    """
    size, few = parts()[2].tgt.size, replace(config, shortlist=12)
    whole, expected = (translated(replace(config, shortlist=n)) for n in (10 * size, 0))
    assert [item.ids for item in whole] == [item.ids for item in expected]
    found = translated(few)
    assert [item.ids for item in found] != [item.ids for item in expected]
    one = translated(few, [LINES[2]])[0]
    assert one.ids == found[2].ids
    sources = parts()[2].src.encode(LINES)
    special = range(UNK + 1)
    for ids, item in zip(sources, found, strict=True):
        assert {*item.ids} <= {*lexicon().shortlist(ids, 12, special).tolist()}


def test_the_list_includes_the_prefix():
    """Whatever the lexicon says; a list without room for it is an error."""
    prefix = "walk"
    begun = parts()[2].tgt.encode([prefix])[0][:-1]
    (found,) = translated(replace(BEAM, shortlist=UNK + 1 + len({*begun})), ["a dog"],
                          prefixes=[prefix])  # fmt: skip
    assert found.ids[: len(begun)] == begun
    with pytest.raises(UserError, match=r"^config\.decoding\.shortlist=5: the prefix and the sp"):
        translated(replace(BEAM, shortlist=5), ["a dog"], prefixes=["two men walk"])


def test_marked_columns_are_those_of_the_pieces():
    """With a list and without; no pieces mark no columns, as for a tokenizer that has neither
    padding nor BOS of its own.
    """
    lists = np.array([[0, 3, 5], [3, 4, 6]], np.int32)
    for tokens in ((), (3,), (0, 6)):
        expected = [[piece in tokens for piece in row] for row in lists]
        np.testing.assert_array_equal(marked(lists, tokens, 3), expected)
        np.testing.assert_array_equal(marked(None, tokens, 7), [[i in tokens for i in range(7)]])
