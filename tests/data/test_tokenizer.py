"""SentencePiece behind our four reserved ids."""

import dataclasses
import subprocess
import sys

import pytest

from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.pair import TokenizerPair, train_pair
from transformer_jax.data.codecs.subwords import Subwords, train
from transformer_jax.data.sources import read_lines
from transformer_jax.errors import UserError
from transformer_jax.vocabulary import BOS, EOS, PAD, RESERVED, UNK

SMALL = TokenizerConfig(vocab_size=64)
BYTES = TokenizerConfig(vocab_size=330, byte_fallback=True)
ALGORITHMS = ["bpe", "unigram"]


@pytest.fixture(scope="module")
def lines(numbers) -> list[str]:
    return [*numbers.src, *numbers.tgt, "Ein Satz, mit < / > und 1 Zahl."]


@pytest.fixture(scope="module")
def small(lines) -> Subwords:
    return train(SMALL, lines)


@pytest.fixture(scope="module")
def with_bytes(lines) -> Subwords:
    return train(BYTES, lines)


def again(tokenizer: Subwords, text: str) -> str:
    return tokenizer.decode(tokenizer.encode([text])[0])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_reserved_ids_and_size(lines, algorithm):
    tokenizer = train(dataclasses.replace(SMALL, algorithm=algorithm), lines)
    assert tokenizer.size == SMALL.vocab_size
    assert tokenizer.pieces([PAD, BOS, EOS, UNK]) == ["<pad>", "<s>", "</s>", "<unk>"]
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_training_gives_the_same_model_every_time(lines, algorithm):
    config = dataclasses.replace(SMALL, algorithm=algorithm)
    one, other = train(config, lines), train(config, tuple(lines))
    assert one.model == other.model
    assert one.digest == other.digest
    assert one.digest != train(dataclasses.replace(config, vocab_size=63), lines).digest


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_sample_of_the_lines_is_the_same_in_every_process(numbers, algorithm):
    """SentencePiece's own sampling differs from process to process, and is the same within one."""
    config = dataclasses.replace(SMALL, algorithm=algorithm, vocab_size=40)
    code = (
        "import sys\n"
        "from transformer_jax.config import TokenizerConfig\n"
        "from transformer_jax.data.codecs.subwords import train\n"
        "lines = sys.stdin.read().splitlines()\n"
        f"config = {dataclasses.replace(config, max_lines=120)}\n"
        "print(train(config, lines).digest)"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", code],
            input="\n".join(numbers.tgt), stdout=subprocess.PIPE, text=True, check=True,
        ).stdout.strip()
        for _ in range(2)
    }  # fmt: skip
    assert shown == {train(dataclasses.replace(config, max_lines=120), numbers.tgt).digest}
    assert len(numbers.tgt) > 120
    assert shown != {train(config, numbers.tgt).digest}


def test_eos_ends_every_line_and_nothing_else_is_reserved(small, lines):
    for ids in small.encode(lines):
        assert ids[-1] == EOS
        assert min(ids[:-1]) >= RESERVED
    assert small.encode(["", "  "]) == [[EOS], [EOS]]
    assert small.encode([]) == []


def test_text_comes_back(small, with_bytes, lines):
    for tokenizer in (small, with_bytes):
        assert [again(tokenizer, line) for line in lines] == lines


def test_decoding_stops_at_the_first_eos_and_skips_padding(small):
    ids = small.encode(["drei"])[0]
    assert small.decode([BOS, *ids, *ids, PAD, PAD]) == "drei"
    assert small.decode([PAD, *ids[:-1], PAD]) == "drei"
    assert small.decode([]) == small.decode([EOS]) == small.decode([PAD]) == ""


def test_real_text_comes_back(multi30k):
    lines = [line for side in ("en", "de") for line in read_lines(multi30k / f"val.{side}")]
    exact = TokenizerConfig(vocab_size=1000, normalization="identity")
    tokenizer = train(exact, lines)
    assert [again(tokenizer, line) for line in lines] == lines
    normalized = train(TokenizerConfig(vocab_size=1000), lines)
    changed = [line for line in lines if again(normalized, line) != line]
    assert [again(normalized, line) for line in changed] == [
        line.replace("\xa0", " ") for line in changed
    ]
    assert len(changed) < 5


def test_unknown_characters(small, with_bytes):
    assert UNK in small.encode(["🦊"])[0]
    assert again(small, "🦊") == " ⁇ "
    for text in ("🦊", "drei 🦊 vier", "你好", "naïve Ł"):
        assert UNK not in with_bytes.encode([text])[0]
        assert again(with_bytes, text) == text


@pytest.mark.parametrize("text", ["<s>", "</s>", "<pad>", "<unk>", "eins <s> zwei</s>", "<0x0A>"])
def test_names_of_pieces_are_text_like_any_other(with_bytes, text):
    ids = with_bytes.encode([text])[0]
    assert min(ids[:-1]) >= RESERVED
    assert with_bytes.decode(ids) == text


def test_decoding_never_gives_a_line_end(with_bytes):
    by_name = {piece: i for i, piece in enumerate(with_bytes.pieces(range(with_bytes.size)))}
    text = with_bytes.decode([by_name[f"<0x{byte:02X}>"] for byte in b"a\nb\r\nc\rd"])
    assert text == "a b  c d"
    one_by_one = [with_bytes.decode([i]) for i in range(with_bytes.size)]
    assert not any(end in text for text in one_by_one for end in "\r\n")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_vocabulary_that_is_too_large_is_told_how_large_it_may_be(lines, algorithm):
    config = dataclasses.replace(SMALL, algorithm=algorithm, vocab_size=50_000)
    with pytest.raises(UserError) as caught:
        train(config, lines)
    start, _, number = str(caught.value).removesuffix(" pieces; lower it").rpartition(" ")
    assert start == "config.tokenizer.vocab_size=50000: the corpus allows at most"
    assert train(dataclasses.replace(config, vocab_size=int(number)), lines).size == int(number)
    with pytest.raises(UserError, match=f"allows at most {number} pieces"):
        train(dataclasses.replace(config, vocab_size=int(number) + 1), lines)


@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_vocabulary_that_is_too_small_is_told_how_small_it_may_be(lines, algorithm, fallback):
    config = TokenizerConfig(algorithm, 261 if fallback else 5, byte_fallback=fallback)
    with pytest.raises(UserError) as caught:
        train(config, lines)
    start, _, end = str(caught.value).partition(" pieces, one for each character; raise it, or ")
    start, _, number = start.rpartition(" ")
    assert start == f"config.tokenizer.vocab_size={config.vocab_size}: the corpus needs at least"
    assert end == "lower config.tokenizer.character_coverage"
    assert train(dataclasses.replace(config, vocab_size=int(number)), lines).size == int(number)
    with pytest.raises(UserError, match=f"needs at least {number} pieces"):
        train(dataclasses.replace(config, vocab_size=int(number) - 1), lines)


@pytest.mark.parametrize("nothing", [[], ["", ""], ["  "]])
def test_a_corpus_of_empty_lines(nothing):
    with pytest.raises(UserError, match=r"^config\.data\.train: all lines are empty"):
        train(SMALL, nothing)


def test_joint_and_separate_vocabularies(tmp_path, numbers):
    joint = train_pair(SMALL, numbers.src, numbers.tgt)
    assert joint.src is joint.tgt
    apart = train_pair(dataclasses.replace(SMALL, joint=False), numbers.src, numbers.tgt)
    assert UNK in apart.src.encode(["query"])[0]  # German numbers have no q and y
    assert "zwanzig" in again(apart.src, "zwanzig")
    assert len({joint.digest, apart.digest, TokenizerPair(apart.tgt, apart.src).digest}) == 3
    for pair, names in (
        (joint, ["tokenizer.model"]),
        (apart, ["tokenizer.src.model", "tokenizer.tgt.model"]),
    ):
        place = tmp_path / str(len(names))
        place.mkdir()
        pair.save(place)
        assert sorted(path.name for path in place.iterdir()) == names
        loaded = TokenizerPair.load(place, joint=pair is joint)
        assert loaded.digest == pair.digest
        assert (loaded.src is loaded.tgt) == (pair is joint)


def test_loading_what_is_not_ours(tmp_path):
    with pytest.raises(UserError, match=r"tokenizer\.model: no tokenizer here"):
        TokenizerPair.load(tmp_path, joint=True)
    (tmp_path / "tokenizer.model").write_bytes(b"something else")
    with pytest.raises(UserError, match=r"tokenizer\.model: not a SentencePiece model"):
        TokenizerPair.load(tmp_path, joint=True)


def test_a_model_with_other_reserved_ids(tmp_path, lines):
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=64, minloglevel=2
    )
    with pytest.raises(UserError, match=r"PAD, BOS, EOS, UNK are \(-1, 1, 2, 0\), must be"):
        Subwords(model.getvalue())
