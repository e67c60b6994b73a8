"""Text files: how they are split into lines, and the errors for unsuitable ones."""

import bz2
import gzip
import io
import lzma
import re
import zipfile

import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.cli.lines import Input
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data import sources
from transformer_jax.data.sources import lines, text_files
from transformer_jax.data.sources.files import read_lines, read_parallel, read_text
from transformer_jax.data.sources.lines import lines_of


@pytest.fixture(params=["plain", "gz"])
def write(request, tmp_path):
    """Return a function that writes bytes to a file, plain or compressed."""

    def to(raw: bytes, name: str = "x.en"):
        path = tmp_path / (name if request.param == "plain" else f"{name}.gz")
        path.write_bytes(raw if request.param == "plain" else gzip.compress(raw))
        return path

    return to


def corpus(directory, **changes) -> DataConfig:
    return DataConfig(directory=str(directory), **changes)


def refusal(call, *arguments) -> str:
    with pytest.raises(UserError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"one", ["one"]),
        (b"one\n", ["one"]),
        (b"one\n\n", ["one", ""]),
        (b"one\n\ntwo", ["one", "", "two"]),
        (b"\xef\xbb\xbfone\ntwo\n", ["one", "two"]),  # a byte order mark
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"one\r\ntwo\r", ["one", "two"]),
        (b"one\rstill one\n", ["one\rstill one"]),
        ("one\u2028still\u2029one\n".encode(), ["one\u2028still\u2029one"]),
        ("one\x85still\x0bone\x0c\x1c\n".encode(), ["one\x85still\x0bone\x0c\x1c"]),
        (" ä 你 🦊 \n".encode(), [" ä 你 🦊 "]),
        (b"a\xef\xbb\xbfb\n", ["a\ufeffb"]),  # a mark inside stays
        (b"nul \x00\n", ["nul \x00"]),
    ],
)
def test_only_line_feeds_end_lines(write, raw, lines):
    assert read_lines(write(raw)) == lines


@pytest.mark.parametrize(
    ("raw", "number", "byte", "column"),
    [
        (b"one\ntwo\nth\xffree\nfour\n", 3, "ff", 3),
        (b"\xe4\n", 1, "e4", 1),  # latin-1
        (b"one\ntw\xc3", 2, "c3", 3),  # cut inside a character
    ],
)
def test_invalid_utf8_is_rejected_with_its_position(write, raw, number, byte, column):
    path = write(raw)
    message = refusal(read_lines, path)
    assert message.startswith(f"{path}:{number}: not UTF-8 (byte 0x{byte} at column {column}); ")
    assert "iconv" in message


def test_unreadable_paths_are_rejected(tmp_path):
    assert refusal(read_lines, tmp_path / "x").startswith(f"{tmp_path}/x: cannot be read (")
    assert refusal(read_lines, tmp_path).startswith(f"{tmp_path}: cannot be read (")


@pytest.mark.parametrize("damage", ["cut", "flipped", "not compressed"])
def test_damaged_archives_are_rejected(tmp_path, damage):
    raw = bytearray(gzip.compress(b"a line\n" * 1000))
    if damage == "cut":
        raw = raw[:-9]
    elif damage == "flipped":
        raw[20:30] = bytes(x ^ 0xFF for x in raw[20:30])
    else:
        raw = bytearray(b"a line\n")
    path = tmp_path / "x.gz"
    path.write_bytes(raw)
    assert refusal(read_lines, path).startswith(f"{path}: cannot be read (")


def test_parallel_files_must_have_equally_many_lines(write):
    src, tgt = write(b"1\n2\n3\n", "x.en"), write(b"1\n2\n", "x.de")
    message = refusal(read_parallel, src, tgt)
    assert message.startswith(f"{src} has 3 lines, {tgt} has 2: ")
    assert read_parallel(src, src) == (["1", "2", "3"], ["1", "2", "3"])


def test_parts_are_joined_in_order(tmp_path):
    for part in ("one", "two"):
        for language in ("en", "de"):
            (tmp_path / f"{part}.{language}").write_text(
                f"{part} {language} 1\n{part} {language} 2"
            )
    found = sources.load(corpus(tmp_path, train=("two", "one")), "train")
    assert found.src == ["two en 1", "two en 2", "one en 1", "one en 2"]
    assert found.tgt == ["two de 1", "two de 2", "one de 1", "one de 2"]
    assert found[2] == {"src": "one en 1", "tgt": "one de 1"}
    assert len(found) == 4
    beside = ObjectiveConfig("translate", document="file", parts=("mono=denoising",))
    assert sources.load(corpus(tmp_path, train=("two", "one")), "train", beside) == found


def test_plain_files_take_precedence_over_archives_on_each_side(tmp_path):
    (tmp_path / "train.en").write_text("plain\n")
    (tmp_path / "train.en.gz").write_bytes(gzip.compress(b"packed\n"))
    (tmp_path / "train.de.gz").write_bytes(gzip.compress(b"gepackt\n"))
    found = sources.load(corpus(tmp_path), "train")
    assert (found.src, found.tgt) == (["plain"], ["gepackt"])


@pytest.mark.parametrize("missing", ["en", "de"])
def test_missing_files_are_reported_with_location_and_remedy(tmp_path, missing):
    (tmp_path / f"train.{'de' if missing == 'en' else 'en'}").write_text("x\n")
    message = refusal(sources.load, corpus(tmp_path, how_to_get="wget -r it"), "train")
    assert f"config.data.directory='{tmp_path}'" in message
    assert f"neither train.{missing} nor train.{missing}.gz in {tmp_path}" in message
    assert "--config.data.directory" in message
    assert message.endswith("Get it with: wget -r it")
    assert "Get it" not in refusal(sources.load, corpus(tmp_path), "train")


@pytest.mark.parametrize(
    ("split", "names", "listed", "remedy"),
    [
        ("validation", ["train", "val", "test"], "parts test, train, val",
         "--config.data.validation=val,"),
        ("validation", ["train", "dev", "test"], "parts dev, test, train",
         "--config.data.validation=dev,"),
        ("test", ["train", "validation", "test_2016_flickr"],
         "parts test_2016_flickr, train, validation", "--config.data.test=test_2016_flickr,"),
        ("test", ["train"], "parts train", "--config.data.test=PART,"),
        ("train", [f"part{i:02}" for i in range(30)], "part18, part19 and 10 more",
         "--config.data.train=part"),
    ],
)  # fmt: skip
def test_parts_with_other_names_are_listed(tmp_path, split, names, listed, remedy):
    for name in names:
        (tmp_path / f"{name}.en.gz").write_bytes(b"")
        (tmp_path / f"{name}.de").write_text("")
    (tmp_path / "half.en").write_text("")
    message = refusal(sources.load, corpus(tmp_path), split)
    assert f"{listed}, and no other side of half.en." in message
    assert remedy in message


def test_files_of_other_languages_are_listed(tmp_path):
    for language in ("en", "fr"):
        (tmp_path / f"train.{language}").write_text("")
    message = refusal(sources.load, corpus(tmp_path), "train")
    assert "which has train.en, train.fr. Set" in message
    assert "--config.data.target_language" in message


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_empty_lines_are_reported_in_scored_splits(tmp_path, caplog, split):
    """Training drops them and reports how many."""
    (tmp_path / f"{split}.en").write_text("one\n \nthree\nfour\n")
    (tmp_path / f"{split}.de").write_text("eins\nzwei\ndrei\n\n")
    assert len(sources.load(corpus(tmp_path), split)) == 4
    expected = f"config.data.{split}=('{split}',): an empty line in 2 of 4 pairs (first: pair 2); "
    assert (expected in caplog.text) == (split != "train")


def test_without_a_directory_the_current_one_is_searched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = refusal(sources.load, DataConfig(), "train")
    assert (
        f"config.data.directory=None: found neither train.en nor train.en.gz in {tmp_path}"
        in message
    )
    (tmp_path / "train.en").write_text("x\n")
    (tmp_path / "train.de").write_text("y\n")
    assert sources.load(DataConfig(), "train").src == ["x"]


def test_a_split_without_pairs_is_rejected(tmp_path):
    for language in ("en", "de"):
        (tmp_path / f"train.{language}").write_text("")
    message = refusal(sources.load, corpus(tmp_path), "train")
    assert message == "config.data.train=('train',): contains no pairs; name other parts"
    assert (
        refusal(sources.load, corpus(tmp_path, test=()), "test")
        == "config.data.test=(): contains no pairs; name other parts"
    )


def test_the_fingerprint_changes_with_the_content(tmp_path):
    def of(src: str, tgt: str) -> str:
        (tmp_path / "train.en").write_text(src)
        (tmp_path / "train.de").write_text(tgt)
        return sources.load(corpus(tmp_path), "train").fingerprint

    one = of("a\nb\n", "c\nd\n")
    assert one == of("a\nb", "c\r\nd\r\n")  # the same lines
    others = [of("a\nx\n", "c\nd\n"), of("a\nb\n", "c\nx\n"), of("b\na\n", "d\nc\n"),
              of("c\nd\n", "a\nb\n"), of("a\nb\n\n", "c\nd\n\n"),
              of("a\nbc\n", "\nd\n")]  # fmt: skip
    assert len({one, *others}) == 7


TEXT = "\none\r\n\n two \u2028\n"
LINES, FILE = (ObjectiveConfig("language_model", document=d) for d in ("line", "file"))  # type: ignore[arg-type]


def test_a_whole_file_is_read_unchanged(write):
    """Every character, including line ends; but a byte order mark is not part of the text."""
    for text in ("", "\n", TEXT, TEXT * 2 + "end"):
        assert read_text(write(text.encode())) == text
    assert read_text(write(b"\xef\xbb\xbf\r\n")) == "\r\n"
    message = refusal(read_text, write(b"one\ntw\xff\n", "y"))
    assert ":2: not UTF-8 (byte 0xff at column 3)" in message


def test_one_sided_text(tmp_path):
    """Only the files of that side are read, line by line or whole (one document per part)."""
    (tmp_path / "a.txt").write_bytes(TEXT.encode())
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"three"))
    config = corpus(tmp_path, target_language="txt", train=("a", "b"), test=("c",))
    lines = sources.load(config, "train", LINES)
    assert (lines.src, lines.tgt) == ((), ["", "one", "", " two \u2028", "three"])
    whole = sources.load(config, "train", FILE)
    assert (whole.src, whole.tgt, len(whole)) == ((), [TEXT, "three"], 2)
    assert lines.fingerprint != whole.fingerprint
    for objective in (LINES, FILE):
        assert "neither c.txt nor c.txt.gz" in refusal(sources.load, config, "test", objective)
    (tmp_path / "c.txt").write_bytes(b"")
    for objective in (LINES, FILE):
        message = refusal(sources.load, config, "test", objective)
        assert message == "config.data.test=('c',): contains no text; name other parts"


def test_a_language_model_of_pairs_reads_the_targets():
    """For the built-in corpus."""
    config = DataConfig(
        source="spelled_numbers", source_language="de", target_language="en",
        num_examples=(9, 1, 1), max_number=100,
    )  # fmt: skip
    found = sources.load(config, "train", LINES)
    assert found.src == ()
    assert found.tgt == sources.load(config, "train").tgt


def test_real_text(multi30k):
    config = corpus(multi30k, validation=("val",))
    found = sources.load(config, "validation")
    assert len(found) == len(found.tgt) == 1014
    assert found[0] == {
        "src": "A group of men are loading cotton onto a truck",
        "tgt": "Eine Gruppe von Männern lädt Baumwolle auf einen Lastwagen",
    }
    assert not any(re.search(r"[\r\n]", line) for line in [*found.src, *found.tgt])


def test_unknown_sources_are_rejected():
    message = refusal(sources.load, DataConfig(source="texts"), "train")  # type: ignore[arg-type]
    assert message.startswith("config.data.source: unknown choice 'texts' (did you mean 'text'?)")


def zipped(raw: bytes) -> bytes:
    with zipfile.ZipFile(made := io.BytesIO(), "w") as archive:
        archive.writestr("x.en", raw)
    return made.getvalue()


PLAIN = b"one\ntwo\n"
COMPRESSED = {
    "gzip": gzip.compress(PLAIN), "xz": lzma.compress(PLAIN), "bzip2": bz2.compress(PLAIN),
    "zip": zipped(PLAIN), "zstd": b"\x28\xb5\x2f\xfd\x24\x08A\x00", "lz4": b"\x04\x22\x4d\x18d@",
    "7-zip": b"7z\xbc\xaf\x27\x1c\x00\x04",
}  # fmt: skip


@pytest.mark.parametrize("kind", COMPRESSED)
@pytest.mark.parametrize("name", ["x.en", "x.en.xz", "x.en.gz"])
def test_compressed_files_are_never_read_as_text(tmp_path, monkeypatch, kind, name):
    """Wherever text is read, whatever the file is called, also inside a .gz."""
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path / "cache"))
    path, raw = tmp_path / name, COMPRESSED[kind]
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    said = rf"is compressed \({kind}\); unpack it first, with `"
    for read in (read_lines, read_text):
        with pytest.raises(UserError, match=f"^{path}: {said}"):
            read(path)
    with pytest.raises(UserError, match=f"^standard input: {said}"):
        list(Input(io.BytesIO(raw), "standard input").blocks(9))
    monkeypatch.setattr(lines, "HELD", -1)
    with pytest.raises(UserError, match=f"^{path}: {said}"):
        lines_of(path)


@pytest.mark.parametrize("raw", [b"BZh is a text\n", b"PK\n", b"7z x\n", b"(\n", b"\x04\n"])
def test_texts_that_only_begin_like_compressed_files_are_read(tmp_path, raw):
    (tmp_path / "x").write_bytes(raw)
    assert read_lines(tmp_path / "x") == [raw.decode().removesuffix("\n")]


@pytest.mark.parametrize("name", ["x.tsv", "lines"])
def test_rows_of_a_part_can_be_chosen(tmp_path, name, monkeypatch):
    """As slices of Python do, and all others with "!"; large files too, and messages name the row
    of the file.
    """
    rows = [(f"s{i}", f"t{i}") for i in range(10)]
    if name == "lines":
        for ending, side in (("en", 0), ("de", 1)):
            text = "".join(f"{row[side]}\n" for row in rows)
            (tmp_path / f"lines.{ending}").write_text(text)
    else:
        (tmp_path / name).write_text("en\tde\n" + "".join(f"{s}\t{t}\n" for s, t in rows))
    for held in (2**26, 0):
        monkeypatch.setattr(lines, "HELD", held)
        for bounds, kept in (
            (":3", rows[:3]), ("3:", rows[3:]), ("2:7", rows[2:7]), ("::4", rows[::4]),
            ("1:9:3", rows[1:9:3]), (":", rows), ("8:100", rows[8:]), ("-3:", rows[-3:]),
            (":-3", rows[:-3]), ("-9:-2:3", rows[-9:-2:3]),
        ):  # fmt: skip
            others = [row for row in rows if row not in kept]
            for word, wanted in ((f"[{bounds}]", kept), (f"[!{bounds}]", others)):
                config = corpus(tmp_path, train=(name + word,))
                if not wanted:
                    message = refusal(sources.load, config, "train")
                    assert f"config.data.train='{name}[!:]': there are no such rows" in message
                    continue
                src, tgt = text_files.load(config, "train")
                assert list(zip(src, tgt, strict=True)) == wanted
                number = rows.index(wanted[-1]) + (1 if name == "lines" else 2)
                ending = ".de" if name == "lines" else ""
                place = text_files.place(config, "train", len(wanted), source=False)
                assert place == f"{tmp_path / name}{ending}:{number}"


@pytest.mark.parametrize("word", ["x[::-1]", "x[: :2]", "x[!::2", "x[1:2:3:4]", "x.tsv[a:]"])
@pytest.mark.parametrize("source", ["text", "arrays"])
def test_rows_chosen_in_no_known_way_are_refused(tmp_path, word, source):
    message = refusal(sources.load, corpus(tmp_path, train=(word,), source=source), "train")
    assert message.startswith(f"config.data.train={word!r}: rows are chosen by whole numbers")


def test_no_rows_of_documents_are_chosen(tmp_path):
    (tmp_path / "x.txt").write_text("one\ntwo\n")
    for part, message in (("x.txt[:1]", "a document is a whole file"), ("x.txt[::0]", "each 0th")):
        assert message in refusal(text_files.documents, corpus(tmp_path, train=(part,)), "train")
