"""Texts in parts: nothing shown is taken back, and nothing depends on how many pieces come at once,
whatever text a tokenizer makes of pieces.
"""

import functools
import random

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from transformer_jax.base.vocabulary import EOS, RESERVED
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs import characters, fen, repeats, subwords, utf8, wordpiece, words
from transformer_jax.data.codecs.codec import SPECIAL, SPELLED, Codec, settled
from transformer_jax.data.codecs.imported import Imported
from transformer_jax.decoding.text.streaming import Parts, cut

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = ["▁a", "▁", "b", "▁.", "▁n", "'", "t", "▁'", "s", "ve", "▁never", "é", ".", ",", "▁ '"]
LINES = ["a b . n't 's never é you've", "ab ba, a b!"]


def llama(cleaned: bool = False) -> Imported:
    """Return a tokenizer with bytes for what it lacks, like Llama 2's."""
    pieces = [*SPELLED, "<|im_end|>", *BYTES, *WORDS]
    model = models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], 3, True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", left=1, right=0),
    ])  # fmt: skip
    special = [AddedToken(piece, special=True, normalized=False) for piece in pieces[:5]]
    tokenizer.add_special_tokens(special)
    return Imported.of(tokenizer.to_str(), SPECIAL, len(pieces), cleaned=cleaned)


def trained(kind, **fields) -> Codec:
    config = TokenizerConfig(**{"vocab_size": 40, **fields})
    return kind.train(config, LINES)


MADE = {
    "bytes in rows": llama,
    "cleaned": lambda: llama(cleaned=True),
    "SentencePiece": lambda: trained(subwords, vocab_size=285, byte_fallback=True),
    "bytes": utf8.Bytes,
    "characters": lambda: trained(characters),
    "WordPiece": lambda: trained(wordpiece, vocab_size=34),
    "words": lambda: trained(words, vocab_size=12),
    "repeats": lambda: trained(repeats),
    "fen": fen.Fen,
}
codec_of = functools.cache(lambda name: MADE[name]())


def drawn(codec: Codec, chance: random.Random, count: int) -> list[int]:
    """Return random pieces, of which half belong to a text, so that most bytes are none."""
    sample = [i for i in codec.encode(LINES)[0] if i != EOS] if codec.file != "fen{}.json" else []
    sample += [i for byte in "é你".encode() for i in range(codec.size)
               if codec.pieces([i]) == [BYTES[byte]]] * 2  # fmt: skip
    others = range(RESERVED, codec.size)
    return [chance.choice(sample if sample and chance.random() < 0.8 else others)
            for _ in range(count)]  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_settled_text_is_never_taken_back(name):
    codec, chance = codec_of(name), random.Random(1)
    shown = 0
    for _ in range(60):
        ids = drawn(codec, chance, 12)
        whole = codec.decode(ids)
        for count in range(13):
            part = settled(codec, ids[:count])
            assert whole.startswith(part), (ids, count)
            shown += len(part)
    assert (shown > 0) == (name != "fen")  # whose text is another one at its end


def in_chunks(codec: Codec, ids: list[int], stop: list[str], sizes: list[int], limit: int):
    """Return the text in parts, the pieces that count, and how it ended."""
    parts = Parts(codec.decode, lambda some: settled(codec, some), limit, EOS, stop)
    found, place = [parts.begin()], 0
    for size in sizes:
        if parts.ended is None:
            found.append(parts.add(ids[place : place + size]))
            place += size
    found.append(parts.finish())
    assert "".join(found) == parts.text
    return parts.text, parts.ids, parts.ended, parts.stopped


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("stop", [[], ["n'", "a"], ["b a", "."], ["你", "é"], ["never", " '"]])
def test_parts_are_those_of_the_whole_text(name, stop):
    """However many pieces come at a time; pieces behind a stop string do not count."""
    codec, chance = codec_of(name), random.Random(2)
    for _ in range(30):
        ids = drawn(codec, chance, 11) + [EOS] * chance.randrange(2)
        limit = chance.choice([len(ids), len(ids) + 5])
        whole = codec.decode(ids)
        one_by_one = in_chunks(codec, ids, stop, [1] * len(ids), limit)
        sizes = [chance.randint(1, 4) for _ in ids]
        for others in ([len(ids)], sizes):
            assert in_chunks(codec, ids, stop, others, limit) == one_by_one
        text, counted, _, stopped = one_by_one
        assert text == cut(whole, stop)
        assert stopped == (text != whole)
        assert counted == ids[: len(counted)]
        if stopped:
            assert cut(codec.decode(counted), stop) == text
            assert cut(codec.decode(counted[:-1]), stop) == codec.decode(counted[:-1])
        else:
            assert counted == ids


def test_the_first_stop_string_to_be_complete_ends_a_text():
    """As one that begins earlier may not be there yet when the search ends."""
    assert cut("abcd", ["abcd", "bc"]) == "a"
    assert cut("abcd", ["bc", "abc"]) == ""
