"""Rearranged windows: put together again they are the text, and nothing else is changed."""

import string
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS
from transformer_jax.config import ObjectiveConfig, TokenizerConfig
from transformer_jax.config.choices.texts import FIM_PIECES
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.codecs import characters, imported, utf8
from transformer_jax.data.codecs.codec import SPECIAL
from transformer_jax.data.objectives.infilling import Infilling
from transformer_jax.data.objectives.language_modelling import LanguageModel
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import TokenStore

TEXTS = ["def ä(x):\n    return x + 1\n", "日本語 — ½", "print('🙂')  # no\n" * 3, "a", ""]
FILES = ObjectiveConfig("language_model", window=24, document="file", fim_rate=1.0)
LINES = ObjectiveConfig("language_model", window=24, fim_rate=1.0)


def byte_level() -> imported.Imported:
    """Return a byte-level BPE tokenizer, as those of code models are, with StarCoder's names."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<pad>", "<s>", "</s>", "<unk>", *FIM_PIECES]
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=special)
    made.train_from_iterator(TEXTS, trainer)
    return imported.Imported.of(made.to_str(), SPECIAL, made.get_vocab_size())


CODECS = {
    "bytes": utf8.train(TokenizerConfig(), [], FIM_PIECES),
    "characters": characters.train(TokenizerConfig(), TEXTS, FIM_PIECES),
    "huggingface": byte_level(),
}


def infilling(name: str, rate: float = 1.0, spm_rate: float = 0.5) -> Infilling:
    config = ObjectiveConfig("language_model", fim_rate=rate, fim_spm_rate=spm_rate)
    return Infilling.of(config, CODECS[name])


def parts(name: str, ids: list[int]) -> tuple[str, str, str, bool]:
    """Return the prefix, middle and suffix of a rearranged window, and whether that came first."""
    codec, sentinels = CODECS[name], infilling(name).sentinels
    assert ids[0] == sentinels.prefix
    at, here = ids.index(sentinels.suffix), ids.index(sentinels.middle)
    end = ids.index(EOS)
    assert end == len(ids) - 1
    spm = at == 1
    prefix, suffix, rest = (
        codec.decode(x) for x in (ids[1:at], ids[at + 1 : here], ids[here + 1 : end])
    )
    return prefix, rest, suffix, spm


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=40)
@given(text=st.text(alphabet=[*"ab \nä日🙂½"], max_size=30), number=st.integers(0, 10**6))
def test_the_parts_are_the_text(name, text, number):
    """Byte for byte, if there is room for the sentinels; cuts are between characters."""
    codec = CODECS[name]
    if name == "characters":
        text = "".join(x for x in text if x in "".join(TEXTS))
    (ids,) = codec.encode([text], bos=True, eos=True)
    room = [*ids, *[EOS] * 4]
    (made,) = infilling(name).rearranged([np.array(room)], Draw(3, 1), np.array([number]))
    made = made.tolist()
    if not text:
        assert made == room
        return
    assert made[0] == BOS
    assert len(made) <= len(room)
    prefix, middle, suffix, spm = parts(name, made[1:])
    # With the suffix first, the prefix is before the middle, and is encoded apart from it.
    assert prefix + middle + suffix == text
    assert not (spm and prefix)


def test_cuts_are_uniform_and_both_forms_occur():
    text, count = string.ascii_letters[:11], 4000
    codec = characters.train(TokenizerConfig(), [text], FIM_PIECES)
    (ids,) = codec.encode([text + "a" * 3], bos=True, eos=True)
    made = infilling("characters")._replace(codec=codec)
    made = made._replace(sentinels=type(made.sentinels).of(codec), spm_rate=0.25, rate=0.5)
    windows = [np.array(ids)] * count
    found = made.rearranged(windows, Draw(0, 7), np.arange(count))
    changed = [x.tolist() for x in found if x.tolist() != ids]
    assert abs(len(changed) / count - 0.5) < 0.03
    first = Counter(x[2] == made.sentinels.suffix and len(x) for x in changed)
    spm = sum(count for key, count in first.items() if key)
    plain = [x for x in changed if x[2] != made.sentinels.suffix]
    # An empty prefix looks alike in both forms: one cut of twelve at the first place.
    assert 0.25 < spm / len(changed) < 0.25 + 0.75 * 0.2
    lengths = np.bincount([x.index(made.sentinels.suffix) - 2 for x in plain], minlength=12)
    # The smaller of two places among 12: 2 (12 - k) - 1 in 144.
    share = (2 * (12 - np.arange(12)) - 1) / 144
    assert np.abs(lengths[1:] / lengths[1:].sum() - share[1:] / share[1:].sum()).max() < 0.03


def batch(config: ObjectiveConfig, draw: Draw, name: str = "bytes", texts=TEXTS[:3]):
    frame = LanguageModel().frame(config)
    ids = CODECS[name].encode(texts, bos=frame.bos, eos=frame.eos)
    store = TokenStore(Ragged.from_lists([]), Ragged.from_lists(ids))
    items = LanguageModel().items(store, config, CODECS[name])
    placement = one_per_row(np.arange(len(items)))
    return LanguageModel().examples(items, placement, len(items), 0, config.window, draw)


@pytest.mark.parametrize("config", [FILES, LINES])
def test_batches(config):
    """A function of the draw; labels are the next inputs; nothing is longer, and with rate 0, as in
    validation, windows are as they are.
    """
    one, other = batch(config, Draw(1, 1)), batch(config, Draw(1, 1))
    np.testing.assert_array_equal(one.tgt.inputs, other.tgt.inputs)
    assert (one.tgt.inputs != batch(config, Draw(1, 2)).tgt.inputs).any()
    plain = batch(config.measured, Draw(1, 1))
    assert config.measured.fim_rate == 0
    assert (plain.tgt.inputs < utf8.SIZE).all()
    target = one.targets["tokens"]
    for read, label, weight, seg in zip(
        one.tgt.inputs, target.labels, target.weight, one.tgt.seg, strict=True
    ):
        count = int((seg > 0).sum())
        assert (weight > 0).sum() == count
        np.testing.assert_array_equal(read[1:count], label[: count - 1])
        if (read >= utf8.SIZE).any():
            assert label[count - 1] == EOS
    assert (one.tgt.inputs >= utf8.SIZE).any()


def test_documents_are_not_mixed():
    """Of joined lines, a window with a line's end in it stays as it is."""
    config = ObjectiveConfig("language_model", window=24, document="joined", fim_rate=1.0)
    lines = ["ab", "cd", "abcdefghijklmnopqrstuvwxyz" * 2]
    made, plain = (batch(c, Draw(1, 1), texts=lines).tgt.inputs for c in (config, config.measured))
    np.testing.assert_array_equal(made[0], plain[0])
    assert (made[1] != plain[1]).any()


def test_tokenizers_that_cannot_are_refused():
    with pytest.raises(UserError, match="has no pieces <fim_prefix>, <fim_middle>, <fim_suffix>"):
        Infilling.of(FILES, utf8.train(TokenizerConfig(), []))
    stripping = SimpleNamespace(
        piece_id=lambda piece: 4, encode=lambda texts, eos: [[5] for _ in texts],
        decode=lambda ids: "a",
    )  # fmt: skip
    with pytest.raises(UserError, match=r"fim_rate=1.0: a text is cut anywhere, and .* choose"):
        Infilling.of(FILES, stripping)
