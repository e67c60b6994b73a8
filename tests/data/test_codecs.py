"""Invariants of every codec, and how each handles unseen text."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS, PAD, RESERVED, UNK
from transformer_jax.config import (
    DataConfig,
    Experiment,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.config.choices.codecs import CODECS as KNOWN
from transformer_jax.config.choices.codecs import SIZED
from transformer_jax.data.codecs import (
    characters,
    classes,
    imported,
    labels,
    utf8,
    values,
    wordpiece,
    words,
)
from transformer_jax.data.codecs.codec import SPECIAL, SPELLED
from transformer_jax.data.codecs.pair import CODECS, TokenizerPair, expected_sizes, train_pair
from transformer_jax.data.codecs.subword_dropout import SubwordDropout
from transformer_jax.data.store.token_store import open_store
from transformer_jax.decoding.text import attention

CONFIG = TokenizerConfig(vocab_size=64, joint=False)
NOT_ANY_TEXT = (
    "trees",
    "fen",
    "board",
    "residues",
    "nucleotides",
    "notes",
    "smiles",
    "tagged",
)  # they encode languages of their own
TEXTS = [
    name
    for name in CODECS
    if KNOWN[name].text and not KNOWN[name].vectors and name not in NOT_ANY_TEXT
]


@pytest.fixture(scope="module", params=TEXTS)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def pair(name, numbers) -> TokenizerPair:
    if name == "huggingface":  # cannot be trained
        return TokenizerPair(imported_of(numbers.src), imported_of(numbers.tgt))
    return train_pair(config_of(name), numbers.src, numbers.tgt, (name, name))


def config_of(name: str) -> TokenizerConfig:
    """Return a config, with a vocabulary small enough for the few words of the training text."""
    return dataclasses.replace(CONFIG, vocab_size=30) if name == "words" else CONFIG


def shown(name: str, codec, text: str) -> str:
    """Return the text that a codec is expected to decode after encoding `text`."""
    if name == "words":
        return " ".join(
            "[UNK]" if i == UNK else codec.pieces([i])[0]
            for i in codec.encode([text], eos=False)[0]
        )
    return text.replace("-", " - ") if name == "wordpiece" else text


def imported_of(lines) -> imported.Imported:
    """Return a byte-level BPE tokenizer like GPT-2's, with our special pieces."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=300, special_tokens=list(SPELLED), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    ))  # fmt: skip
    return imported.Imported.of(tokenizer.to_str(), SPECIAL, tokenizer.get_vocab_size())


# --- every codec --------------------------------------------------------------------------------


def test_text_round_trips(name, pair, numbers):
    """Except that WordPiece puts spaces around hyphens and unknown words become [UNK]."""
    for codec, lines in zip(pair, (numbers.src, numbers.tgt), strict=True):
        expected = [shown(name, codec, line) for line in lines]
        assert [codec.decode(ids) for ids in codec.encode(lines)] == expected


def test_special_pieces_are_added_only_on_request(name, pair, numbers):
    codec, lines = pair.src, [*numbers.src[:9], ""]
    if name == "words":
        lines = [*codec.pieces(range(RESERVED, RESERVED + 9)), ""]
    assert codec.special == {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK}
    bare = codec.encode(lines, eos=False)
    assert all(RESERVED <= i < codec.size for ids in bare for i in ids)
    assert codec.encode(lines) == [[*ids, EOS] for ids in bare]
    assert codec.encode(lines, bos=True) == [[BOS, *ids, EOS] for ids in bare]
    assert bare[-1] == codec.encode([], bos=True) == []


def test_decoding_stops_at_the_first_eos_and_skips_padding(name, pair, numbers):
    (ids,) = pair.tgt.encode(numbers.tgt[:1])
    text = shown(name, pair.tgt, numbers.tgt[0])
    assert pair.tgt.decode(np.array([PAD, BOS, *ids, *ids, PAD])) == text
    assert pair.tgt.decode([]) == pair.tgt.decode([EOS, *ids]) == pair.tgt.decode([PAD]) == ""


def test_pieces_have_unique_names(pair):
    codec = pair.src
    names = codec.pieces(range(codec.size))
    assert names[:RESERVED] == ["<pad>", "<s>", "</s>", "<unk>"]
    assert [codec.piece_id(name) for name in names] == list(range(codec.size))
    with pytest.raises(UserError, match="'a piece' is "):
        codec.piece_id("a piece")
    assert not any(codec.is_text(i) for i in SPECIAL.values())


def test_pairs_are_saved_and_loaded(name, pair, numbers, tmp_path):
    joint = TokenizerPair(pair.src, pair.src)
    for count, some in enumerate((joint, pair), 1):
        place = tmp_path / str(count)
        place.mkdir()
        some.save(place)
        assert len(list(place.iterdir())) == count
        again = TokenizerPair.load(place, some is joint, (name, name))
        assert again.digest == some.digest
        assert (again.src is again.tgt) == (some is joint)
        assert again.src.encode(numbers.src) == some.src.encode(numbers.src)
    with pytest.raises(UserError, match=r"1/.*: no tokenizer here"):
        TokenizerPair.load(tmp_path / "1", False, (name, name))


def test_errors_for_damaged_files_name_the_expected_content(name, pair, tmp_path):
    pair.save(tmp_path)
    path = tmp_path / pair.tgt.file.format(".tgt")
    odd = (
        {"special": {"pad": 1}, "characters": "ab"}, {"special": dict(SPECIAL), "characters": 3},
        {"special": dict(SPECIAL), "lowercase": True, "words": ["a", "a"], "pieces": ["<pad>"],
         "symbols": []},
        {"special": dict(SPECIAL), "lowercase": True, "words": ["<s>"], "pieces": [*SPELLED, 3],
         "symbols": []},
    )  # fmt: skip
    for content in (b"x", b"{}", b"[" * 10**5, *(json.dumps(x).encode() for x in odd)):
        path.write_bytes(content)
        with pytest.raises(UserError) as caught:
            TokenizerPair.load(tmp_path, False, (name, name))
        assert str(caught.value).startswith(f"{path}: not {CODECS[name].holds} (")


def test_sizes_are_known_before_training(name, numbers):
    """For the built-in corpus; subwords have the configured number."""
    if name == "huggingface":
        with pytest.raises(UserError, match="cannot be trained; start from an imported"):
            train_pair(CONFIG, numbers.src, numbers.tgt, (name, name))
        return
    size = config_of(name).vocab_size if name in SIZED else TokenizerConfig.vocab_size
    experiment = Experiment(
        src=SourceConfig(name), tgt=SideConfig(name), tokenizer=TokenizerConfig(vocab_size=size),
        data=DataConfig(source="spelled_numbers", source_language="de", target_language="en",
                        num_examples=(150, 1, 1), max_number=100_000),
    )  # fmt: skip
    pair = train_pair(experiment.tokenizer, numbers.src, numbers.tgt, experiment.codecs)
    assert expected_sizes(experiment) == (pair.src.size, pair.tgt.size)


# --- characters and bytes -----------------------------------------------------------------------

ANY = st.text(st.characters(exclude_categories=[]))  # including line ends and lone surrogates


@settings(deadline=None)
@example(["\ud800", "\udc00\udc01"])  # neighbours in the list that are a pair in JSON's escapes
@given(st.lists(ANY, min_size=1).filter(any))
def test_characters_preserve_any_text(texts):
    codec = characters.train(CONFIG, texts)
    encoded = codec.encode(texts, bos=True)
    assert [codec.decode(ids) for ids in encoded] == texts
    assert [len(ids) - 2 for ids in encoded] == list(map(len, texts))
    assert codec.size == RESERVED + len(set("".join(texts)))
    assert type(codec)(codec.model).pieces(range(codec.size)) == codec.pieces(range(codec.size))


@settings(deadline=None)
@given(st.text())
def test_bytes_preserve_any_text(text):
    codec = utf8.Bytes()
    (ids,) = codec.encode([text])
    assert codec.decode(ids) == text
    assert [i - RESERVED for i in ids[:-1]] == list(text.encode())


def test_invalid_utf8_and_lone_surrogates():
    codec = utf8.Bytes()
    assert codec.decode([RESERVED + 0xFF, RESERVED + 0x41, UNK]) == "\ufffdA"
    assert codec.encode(["\ud800"], eos=False) == [[RESERVED + x for x in (0xED, 0xA0, 0x80)]]


def test_characters_unseen_in_training():
    codec = characters.train(CONFIG, ["ba", "c\n"])
    assert codec.pieces(range(RESERVED, codec.size)) == ["\n", "a", "b", "c"]
    assert codec.encode(["abz\x00" + chr(sys.maxunicode)]) == [[5, 6, UNK, UNK, UNK, EOS]]
    assert codec.decode([5, UNK, 4]) == "a⁇\n"
    assert codec.decode([5, BOS, PAD, 6]) == "ab"


def test_a_corpus_without_characters_is_rejected():
    with pytest.raises(UserError, match=r"^config\.data\.train: all texts are empty"):
        characters.train(CONFIG, ["", ""])


def test_each_side_has_its_own_codec(numbers, tmp_path):
    pair = train_pair(CONFIG, numbers.src, numbers.tgt, ("characters", "bytes"))
    store = open_store(numbers, pair, tmp_path)
    assert store.src.lengths.tolist() == [len(line) + 1 for line in numbers.src]
    assert store.tgt.lengths.tolist() == [len(line.encode()) + 1 for line in numbers.tgt]
    pair.save(tmp_path)
    names = {path.name for path in tmp_path.glob("*.json")}
    assert names == {"characters.src.json", "bytes.tgt.json"}
    assert TokenizerPair.load(tmp_path, False, ("characters", "bytes")).digest == pair.digest


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "huggingface"])  # not trainable
def test_named_pieces_have_their_own_ids(name, numbers, tmp_path):
    """They never result from text, are not decoded, and survive saving and loading."""
    joint = dataclasses.replace(config_of(name), joint=True)
    plain = train_pair(joint, numbers.src, [], (name, name)).src
    pair = train_pair(joint, numbers.src, [], (name, name), ("<mask>",))
    pair.save(tmp_path)
    for codec in (pair.src, TokenizerPair.load(tmp_path, True, (name, name)).src):
        mask = codec.special["mask"]
        assert codec.special == {**SPECIAL, "mask": mask}
        assert codec.pieces([mask]) == ["<mask>"]
        assert codec.piece_id("<mask>") == mask
        assert not codec.is_text(mask)
        assert codec.size == plain.size + (name not in SIZED)  # whose size is configured
        encoded = codec.encode([*numbers.src, "mask"])
        assert all(mask not in ids for ids in encoded)
        ids = encoded[0]
        assert codec.decode([ids[0], mask, *ids[1:]]) == codec.decode(ids)
        assert codec.digest != plain.digest
    assert "mask" not in plain.special


def test_word_starts_are_the_pieces_with_a_leading_marker(numbers):
    codec = train_pair(CONFIG, numbers.src, numbers.tgt).tgt
    starts, pieces = codec.word_starts(), codec.pieces(range(codec.size))
    assert starts.tolist() == [piece.startswith("▁") for piece in pieces]
    (ids,) = codec.encode(["one hundred"], eos=False)
    assert starts[ids].sum() == 2
    assert utf8.Bytes().word_starts() is None


# --- words and pieces of words ------------------------------------------------------------------

WORDS = ["The cat sat .", "the dog  sat", "The end of <2de> it"]


def test_the_most_frequent_words_are_pieces():
    """Ties go by code points; named pieces come first; case is kept unless `lowercase` is set."""
    config = dataclasses.replace(CONFIG, vocab_size=9)
    codec = words.train(config, WORDS, ("<mask>",))
    assert codec.pieces(range(4, 9)) == ["<mask>", "The", "sat", ".", "<2de>"]
    ids = codec.encode(["The <mask> sat\tdown . </s>"])
    assert ids == [[5, UNK, 6, UNK, 7, UNK, EOS]]  # text never yields a named piece
    assert codec.decode(ids[0]) == "The [UNK] sat [UNK] . [UNK]"
    assert codec.word_starts().all()
    config = dataclasses.replace(config, lowercase=True, symbols=("<2de>", "@x@", "<BT>"))
    lower = words.train(config, [*WORDS, *["<BT>"] * 9])
    assert lower.pieces(range(4, 9)) == ["<2de>", "@x@", "<BT>", "the", "sat"]
    assert lower.encode(["THE @X@ <2DE> <BT>"], eos=False) == [[7, 5, 4, 6]]
    message = r"vocab_size=99: the corpus has 10 words, plus 4 named pieces; lower it to 14$"
    with pytest.raises(UserError, match=message):
        words.train(dataclasses.replace(CONFIG, vocab_size=99), WORDS)


def test_pre_tokenised_text_keeps_its_pieces():
    """Pieces of another program, separated by spaces, with @@ where a word continues."""
    cut = ["ein klein@@ er Hund", "ein@@ e Katze"]
    codec = words.train(dataclasses.replace(CONFIG, vocab_size=11), cut)
    assert [codec.decode(ids) for ids in codec.encode(cut)] == cut


def test_words_are_split_into_the_longest_pieces(numbers):
    """By greedy longest match from the left, written out here."""
    codec = wordpiece.train(dataclasses.replace(CONFIG, vocab_size=90), numbers.tgt)
    known = set(codec.pieces(range(RESERVED, codec.size)))

    def longest(word: str) -> list[str]:
        found: list[str] = []
        while word:
            mark = "##" if found else ""
            ends = [n for n in range(len(word), 0, -1) if mark + word[:n] in known]
            if not ends:
                return ["<unk>"]
            found.append(mark + word[: ends[0]])
            word = word[ends[0] :]
        return found

    for line in [*numbers.tgt, "hundredth thousander", "qqq one"]:
        (ids,) = codec.encode([line], eos=False)
        split = line.replace("-", " - ").replace(",", " ,").split()
        assert codec.pieces(ids) == [piece for word in split for piece in longest(word)]
    starts = codec.word_starts()
    assert starts[ids].all()
    assert codec.decode(ids) == "[UNK] one"
    (ids,) = codec.encode(["seventeen"], eos=False)
    assert starts[ids].tolist() == [True] + [False] * (len(ids) - 1)


def test_a_text_that_begins_inside_a_word(numbers):
    """A span of one, behind a sentinel that is not written."""
    codec = wordpiece.train(dataclasses.replace(CONFIG, vocab_size=90), numbers.tgt, ("<gap>",))
    (ids,) = codec.encode(["seventeen one"], eos=False)
    inside = "".join(codec.pieces(ids[1:-1])).replace("##", "")
    assert (
        codec.decode(ids[1:]) == codec.decode([codec.special["gap"], *ids[1:]]) == f"{inside} one"
    )
    assert codec.decode([]) == ""


def test_wordpiece_training_is_the_same_in_every_process(numbers):
    """The trainer of `tokenizers` numbers characters in the order of a hash table."""
    config = dataclasses.replace(CONFIG, vocab_size=120)
    code = (
        "import sys\n"
        "from transformer_jax.config import TokenizerConfig\n"
        "from transformer_jax.data.codecs.wordpiece import train\n"
        f"print(train({config}, sys.stdin.read().splitlines()).digest)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], input="\n".join(numbers.src), stdout=subprocess.PIPE,
        text=True, check=True,
    ).stdout.strip()  # fmt: skip
    assert {wordpiece.train(config, numbers.src).digest for _ in range(3)} == {found}


def test_wordpiece_case_accents_and_symbols():
    lines = ["Über Cafés, and the <2de> end."] * 3
    config = dataclasses.replace(CONFIG, lowercase=True, symbols=("<2de>",), vocab_size=48)
    codec = wordpiece.train(config, lines, ("<mask>",))
    assert codec.pieces(range(4, 6)) == ["<mask>", "<2de>"]
    (ids,) = codec.encode(lines[:1])
    assert ids.count(5) == 1
    assert codec.decode(ids) == "uber cafes, and the <2de> end."
    with pytest.raises(UserError, match=r"vocab_size=500: the corpus allows at most \d+ pieces; l"):
        wordpiece.train(dataclasses.replace(config, vocab_size=500), lines)
    with pytest.raises(UserError, match=r"vocab_size=9: the corpus needs at least \d+ pieces, for"):
        wordpiece.train(dataclasses.replace(config, vocab_size=9), lines)


def test_classes_are_the_distinct_training_lines(tmp_path):
    """In sorted order from 0, without special pieces; classes unseen in training are rejected."""
    pair = train_pair(CONFIG, ["some text"], ["pos", "neg", "", "pos"], ("bytes", "classes"))
    codec = pair.tgt
    assert (codec.size, codec.special) == (3, {})
    assert codec.encode(["pos", "", "neg"], bos=True) == [[2], [0], [1]]
    assert (codec.decode([1]), codec.decode([])) == ("neg", "")
    assert codec.pieces(range(3)) == ["", "neg", "pos"]
    assert not codec.is_text(0)
    assert codec.word_starts() is None
    with pytest.raises(UserError, match="'neutral' is not a class of the training data, which has"):
        codec.encode(["neutral"])
    with pytest.raises(UserError, match=r"^config\.data\.train: all 2 texts are of one class"):
        classes.train(CONFIG, ["pos", "pos"])
    pair.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"bytes.src.json", "classes.tgt.json"}
    assert TokenizerPair.load(tmp_path, False, ("bytes", "classes")).digest == pair.digest
    for content in (b"x", b"{}", b"[" * 10**5, b'{"classes": []}', b'{"classes": ["a", "a"]}'):
        (tmp_path / "classes.tgt.json").write_bytes(content)
        with pytest.raises(UserError, match=r"classes\.tgt\.json: not a list of classes \("):
            TokenizerPair.load(tmp_path, False, ("bytes", "classes"))


def test_labels_are_those_of_the_training_text(tmp_path):
    """A text has one label per word."""
    pair = train_pair(CONFIG, ["some text"], ["B-X O", "", "O I-X  O"], ("bytes", "labels"))
    codec = pair.tgt
    assert codec.pieces(range(codec.size)) == ["B-X", "I-X", "O"]
    assert codec.encode(["O B-X", ""], bos=True) == [[2, 0], []]
    assert codec.decode([2, 0]) == "O B-X"
    with pytest.raises(UserError, match=r"'Q' is not a label of the training data, which has"):
        codec.encode(["O Q"])
    with pytest.raises(UserError, match=r"^config\.data\.train: has only one label, \['O'\]"):
        labels.train(CONFIG, ["O O"])
    pair.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"bytes.src.json", "labels.tgt.json"}
    assert TokenizerPair.load(tmp_path, False, ("bytes", "labels")).digest == pair.digest


def test_values_are_standardised_by_the_training_numbers(tmp_path):
    """As standard deviations from the mean, stored as the bits of a float32."""
    pair = train_pair(CONFIG, ["some text"], ["1", "3.0", "5e0", "3"], ("bytes", "values"))
    codec = pair.tgt
    ids = codec.encode(["3", "5", " -1.5 "])
    scaled = np.array(ids, np.int32).view(np.float32)[:, 0]
    np.testing.assert_allclose(scaled, np.array([0, 2, -4.5]) / 2**0.5, rtol=1e-6)
    assert [codec.decode(x) for x in ids] == ["3", "5", "-1.5"]
    for text in ("", "one", "nan", "inf"):
        with pytest.raises(UserError, match=r"is not a number, such as 3\.5"):
            codec.encode([text])
    for texts, same in ((["4", "4.0"], "2 numbers are 4"), (["0.1"] * 3, r"3 numbers are 0\.1")):
        with pytest.raises(UserError, match=rf"^config\.data\.train: all {same}"):
            values.train(CONFIG, texts)
    pair.save(tmp_path)
    assert TokenizerPair.load(tmp_path, False, ("bytes", "values")).digest == pair.digest
    for content in (b"x", b"{}", b'{"mean": 1, "deviation": 0}'):
        (tmp_path / "values.tgt.json").write_bytes(content)
        with pytest.raises(UserError, match=r"values\.tgt\.json: not the scale of values \("):
            TokenizerPair.load(tmp_path, False, ("bytes", "values"))


@pytest.mark.parametrize("kind", [characters, utf8])
def test_codecs_without_merges_ignore_bpe_dropout(kind, numbers):
    """So BPE-dropout for one side leaves a side of characters or bytes unchanged."""
    codec = kind.train(CONFIG, numbers.src)
    assert SubwordDropout(codec, 0.5, 1).encode(numbers.src) == codec.encode(numbers.src)


def test_alignments_know_the_words_of_every_codec(name, pair, numbers):
    """The pieces of a word, decoded, are that word; attention along the diagonal aligns word i with
    word i.
    """
    codec = pair.tgt
    for line in [*numbers.tgt[:5], f"{numbers.tgt[0]}  {numbers.tgt[1]}", "x", ""]:
        (ids,) = codec.encode([line], eos=False)
        found, text = attention.words(codec, ids), codec.decode(ids)
        assert found == sorted(found)
        assert sorted({*found}) == [*range(len(text.split()))]
        for number, word in enumerate(text.split()):
            of_it = [x for x, which in zip(ids, found, strict=True) if which == number]
            assert codec.decode(of_it).strip() == word
        pairs = attention.align(np.eye(len(ids)), TokenizerPair(codec, codec), ids, ids)
        assert pairs == [(i, i) for i in range(len(text.split()))]


def test_words_contain_no_break_spaces():
    """As files of words that another program has cut may have them; others are words of their own,
    so that what is encoded with older vocabularies is as it was.
    """
    codec = words.train(TokenizerConfig(vocab_size=7), ["10\u00a0000 km", "10\u00a0000 x km"])
    assert codec.pieces(range(RESERVED, 7)) == ["10\u00a0000", "km", "x"]
    assert codec.decode(codec.encode(["10\u00a0000  km"])[0]) == "10\u00a0000 km"
    (ids,) = codec.encode(["km\u202fx"], eos=False)
    assert codec.pieces(ids) == ["km", "x"]


@pytest.mark.parametrize("space", [" ", "  ", "\t"])
def test_spaces_around_a_class_are_not_part_of_it(space, caplog):
    lines = ["good", f"bad{space}", f"{space}good", "bad"]
    codec = classes.train(TokenizerConfig(), lines)
    assert codec.pieces(range(codec.size)) == ["bad", "good"]
    assert codec.encode(lines) == [[1], [0], [1], [0]]
    assert "spaces around 2 of 4 classes" in caplog.text


def test_old_models_keep_classes_that_differ_in_spaces():
    codec = classes.Classes.of(["bad", "bad ", "good"])
    assert codec.encode(["bad", "bad ", " bad"]) == [[0], [1], [0]]
