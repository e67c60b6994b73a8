"""SentencePiece tokenizers with our four reserved ids."""

import dataclasses
import subprocess
import sys

import pytest
import sentencepiece as spm

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS, PAD, RESERVED, UNK
from transformer_jax.config import Experiment, TokenizerConfig
from transformer_jax.data.codecs.pair import TokenizerPair, train_pair
from transformer_jax.data.codecs.subword_dropout import SubwordDropout
from transformer_jax.data.codecs.subwords import Subwords, train
from transformer_jax.data.sources.files import read_lines
from transformer_jax.decoding.text.attention import words
from transformer_jax.export.huggingface.tokenizer_json import files

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
    """SentencePiece's own sampling differs between processes, and is the same within one."""
    config = dataclasses.replace(SMALL, algorithm=algorithm, vocab_size=40)
    code = (
        "import sys\n"
        "from transformer_jax.config import Experiment, TokenizerConfig\n"
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


def test_text_round_trips(small, with_bytes, lines):
    for tokenizer in (small, with_bytes):
        assert [again(tokenizer, line) for line in lines] == lines


def test_decoding_stops_at_the_first_eos_and_skips_padding(small):
    ids = small.encode(["drei"])[0]
    assert small.decode([BOS, *ids, *ids, PAD, PAD]) == "drei"
    assert small.decode([PAD, *ids[:-1], PAD]) == "drei"
    assert small.decode([]) == small.decode([EOS]) == small.decode([PAD]) == ""


def test_real_text_round_trips(multi30k):
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


def pieces_of(tokenizer: Subwords, lines: list[str]) -> list[list[str]]:
    return [tokenizer.pieces(ids) for ids in tokenizer.encode(lines, eos=False)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_symbols_are_never_split(lines, algorithm):
    """Not even by BPE-dropout, wherever they are in a text; they are decoded unchanged."""
    symbols = ("<2de>", "<BT>", "@url@")
    config = dataclasses.replace(SMALL, algorithm=algorithm, symbols=symbols, vocab_size=70)
    tokenizer = train(config, lines, ("<mask>",))
    assert tokenizer.size == 70
    ids = [tokenizer.piece_id(symbol) for symbol in symbols]
    assert not any(map(tokenizer.is_text, ids))
    assert tokenizer.special.keys() == {"pad", "bos", "eos", "unk", "mask"}
    text = "<2de> <BT> drei@url@vier @url@"
    (encoded,) = tokenizer.encode([text])
    assert [i for i in encoded if i in ids] == [*ids, ids[-1]]
    assert tokenizer.decode(encoded) == text
    (cut,) = SubwordDropout(tokenizer, 0.9, 1).encode([text])
    assert [i for i in cut if i in ids] == [*ids, ids[-1]]
    assert tokenizer.decode(cut) == text


# As in T5, Marian, Llama and ALBERT.
FOREIGN = {
    "t5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "model_type": "unigram"},
    "marian": {"eos_id": 0, "unk_id": 1, "bos_id": -1, "pad_id": -1, "model_type": "bpe"},
    "llama": {
        "unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1, "model_type": "bpe",
        "byte_fallback": True, "normalization_rule_name": "identity", "vocab_size": 400,
    },
    "albert": {
        "pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "bos_piece": "[CLS]",
        "eos_piece": "[SEP]", "pad_piece": "<nothing>", "control_symbols": ["[MASK]"],
        "user_defined_symbols": ["<2de>"],
    },
}  # fmt: skip


@pytest.mark.parametrize("fields", FOREIGN.values(), ids=FOREIGN)
def test_an_existing_model_segments_text_as_before(lines, fields, tmp_path):
    """Its pieces follow our reserved ids, in their order."""
    with open(tmp_path / "their.model", "wb") as file:
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=file, minloglevel=2,
            **{"vocab_size": 90, **fields},
        )  # fmt: skip
    theirs = spm.SentencePieceProcessor(model_file=str(tmp_path / "their.model"))
    config = TokenizerConfig(model=str(tmp_path / "their.model"), symbols=("<2de>", "<BT>"))
    ours = train(config, ["whatever"], ("<mask>",))
    texts = [*lines, "Eine  Zahl: ¼ ﬁn 🦊", ""]
    assert pieces_of(ours, texts) == [
        list(map(theirs.id_to_piece, theirs.encode(x))) for x in texts
    ]
    assert [again(ours, text) for text in texts] == [theirs.decode(theirs.encode(x)) for x in texts]
    special = {theirs.pad_id(), theirs.bos_id(), theirs.eos_id(), theirs.unk_id()}
    kept = [theirs.id_to_piece(i) for i in range(theirs.get_piece_size()) if i not in special]
    added = [x for x in ("<mask>", "<2de>", "<BT>") if x not in kept]
    assert ours.pieces(range(RESERVED, ours.size)) == [*kept, *added]
    assert ours.pieces(range(RESERVED)) == ["<pad>", "<s>", "</s>", "<unk>"]
    assert ours.special["mask"] == ours.piece_id("<mask>")
    assert again(ours, "<2de> drei") == "<2de> drei"
    assert Subwords(ours.model).digest == train(config, [], ("<mask>",)).digest


def test_unk_is_decoded_as_configured(lines, small, tmp_path):
    (tmp_path / "x.model").write_bytes(small.model)
    for fields in ({"vocab_size": 64}, {"model": str(tmp_path / "x.model")}):
        codec = train(TokenizerConfig(**fields, unk_surface="[UNK]"), lines)
        assert again(codec, "drei 🦊 vier") == "drei [UNK] vier"


def test_invalid_existing_models_are_rejected(tmp_path):
    (tmp_path / "x.model").write_bytes(b"no model")
    for name in ("x.model", "y.model"):
        config = TokenizerConfig(model=str(tmp_path / name))
        with pytest.raises(UserError, match=rf"^config\.tokenizer\.model='{config.model}': "):
            train(config, [])


def test_unknown_characters(small, with_bytes):
    assert UNK in small.encode(["🦊"])[0]
    assert again(small, "🦊") == " ⁇ "
    for text in ("🦊", "drei 🦊 vier", "你好", "naïve Ł"):
        assert UNK not in with_bytes.encode([text])[0]
        assert again(with_bytes, text) == text


@pytest.mark.parametrize("text", ["<s>", "</s>", "<pad>", "<unk>", "eins <s> zwei</s>", "<0x0A>"])
def test_names_of_pieces_are_ordinary_text(with_bytes, text):
    ids = with_bytes.encode([text])[0]
    assert min(ids[:-1]) >= RESERVED
    assert with_bytes.decode(ids) == text


def test_decoding_never_produces_a_line_end(with_bytes):
    by_name = {piece: i for i, piece in enumerate(with_bytes.pieces(range(with_bytes.size)))}
    text = with_bytes.decode([by_name[f"<0x{byte:02X}>"] for byte in b"a\nb\r\nc\rd"])
    assert text == "a b  c d"
    one_by_one = [with_bytes.decode([i]) for i in range(with_bytes.size)]
    assert not any(end in text for text in one_by_one for end in "\r\n")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_error_for_a_too_large_vocabulary_states_the_maximum(lines, algorithm):
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
def test_the_error_for_a_too_small_vocabulary_states_the_minimum(lines, algorithm, fallback):
    config = TokenizerConfig(algorithm, 261 if fallback else 5, byte_fallback=fallback)
    with pytest.raises(UserError) as caught:
        train(config, lines)
    start, _, end = str(caught.value).partition(" pieces, one per character; raise it, or ")
    start, _, number = start.rpartition(" ")
    assert start == f"config.tokenizer.vocab_size={config.vocab_size}: the corpus needs at least"
    assert end == "lower config.tokenizer.character_coverage"
    assert train(dataclasses.replace(config, vocab_size=int(number)), lines).size == int(number)
    with pytest.raises(UserError, match=f"needs at least {number} pieces"):
        train(dataclasses.replace(config, vocab_size=int(number) - 1), lines)


@pytest.mark.parametrize("nothing", [[], ["", ""], ["  "], ["one " * 1049]])
def test_a_corpus_of_lines_that_sentencepiece_skips(nothing):
    with pytest.raises(UserError, match=r"^config\.data\.train: all lines are empty, or longer"):
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


def test_missing_and_invalid_saved_models_are_rejected(tmp_path):
    with pytest.raises(UserError, match=r"tokenizer\.model: no tokenizer here"):
        TokenizerPair.load(tmp_path, joint=True)
    (tmp_path / "tokenizer.model").write_bytes(b"something else")
    with pytest.raises(UserError, match=r"tokenizer\.model: not a SentencePiece model"):
        TokenizerPair.load(tmp_path, joint=True)


def test_a_model_with_other_reserved_ids_is_rejected(tmp_path, lines):
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=64, minloglevel=2
    )
    with pytest.raises(UserError, match=r"PAD, BOS, EOS, UNK are \(-1, 1, 2, 0\), must be"):
        Subwords(model.getvalue())


def test_few_texts_are_encoded_like_many(small, lines):
    """Few are encoded one by one, without threads."""
    many = small.encode(lines)
    assert len(lines) > 33
    for count in (0, 1, 32, 33):
        assert small.encode(lines[:count]) == many[:count]
    assert small.encode(lines[:2], bos=True, eos=False) == [[BOS, *ids[:-1]] for ids in many[:2]]


def test_a_model_that_writes_spaces_behind_words_leaves_none_behind_a_text(lines, tmp_path):
    """And it shows where words end, not where they begin; any beginning of a text grows."""
    path = tmp_path / "suffix.model"
    with path.open("wb") as file:
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=file, vocab_size=64, model_type="bpe",
            treat_whitespace_as_suffix=True, minloglevel=2,
        )  # fmt: skip
    tokenizer = train(TokenizerConfig(model=str(path)), lines)
    for line in lines[:20]:
        (ids,) = tokenizer.encode([line])
        assert tokenizer.decode(ids) == line
        found = words(tokenizer, ids)
        assert sorted({*found}) == [*range(len(line.split()))]
        grown = [tokenizer.decode(ids[:length]) for length in range(len(ids))]
        assert all(line.startswith(text) for text in grown)
    assert tokenizer.word_starts() is None
    with pytest.raises(UserError, match=r"tokenizer\.model: writes spaces behind words"):
        files(tokenizer, Experiment())


@pytest.mark.parametrize(
    ("line", "reason"),
    [("zq " * 1500, "1 of 4 lines longer than 4,192 bytes"), ("zq▅", "1 of 4 lines with the sign")],
)
def test_lines_that_sentencepiece_passes_over_are_named(line, reason, caplog):
    """It says nothing, and what occurs only there has no piece."""
    lines = ["ein haus und ein hund", "der hund und das haus", "das haus"]
    config = TokenizerConfig(vocab_size=24)
    tokenizer = train(config, [*lines, line])
    assert UNK in tokenizer.encode(["zq"])[0]
    assert reason in caplog.text
    caplog.clear()
    short = train(config, [*lines, line[:3].replace("▅", "")])
    assert UNK not in short.encode(["zq"])[0]
    assert not caplog.text
