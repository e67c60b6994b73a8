"""Files with columns: every format gives the same texts, corpus and run as files of lines."""

import dataclasses
import gzip
import pickle
import sys
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from array_record.python import array_record_module
from columns import FORMATS, SIDES, write_csv, write_json, write_tsv
from starts import start_at_random
from tiny import RUN

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data import sources
from transformer_jax.data.sources import lines, rows, spelled_numbers
from transformer_jax.data.sources.copies import Copied
from transformer_jax.experiments import train as runs
from transformer_jax.runs.workdir import WorkDir
from transformer_jax.training.loop import Outcome

# Saved by datasets 5.2.0: a DatasetDict of two splits, 7 rows in two files and 3 in one, with the
# features Value, ClassLabel and Translation.
SAVED = Path(__file__).parent / "saved_dataset"
LM = ObjectiveConfig("language_model")
TABLES = "parquet", "arrow", "feather"
# Some with quotes, separators, characters of two to four bytes, and none.
PAIRS = [(f"Satz {i}, „grün“ \u2028🦊" * (i % 3), f'the "line" {i}') for i in range(25)]
NUMBERS = [*zip(*spelled_numbers.load(RUN.data, "train"), strict=True)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path / "cache"))


@pytest.fixture(params=["held", "copied"])
def kept(request, monkeypatch):
    """Hold texts in memory, or copy them, a file at a time and a few bytes at a time."""
    if request.param == "copied":
        monkeypatch.setattr(lines, "HELD", -1)
        monkeypatch.setattr(rows, "BYTES", 64)
        monkeypatch.setattr(rows, "_PACKED", 7)
    return request.param


def config(directory: Path, *train: str, columns: tuple[str, ...] = SIDES) -> DataConfig:
    return DataConfig(directory=str(directory), train=train, columns=columns)


def refusal(call, *arguments) -> str:
    with pytest.raises(UserError) as caught:
        call(*arguments)
    return str(caught.value)


def write_parallel(directory: Path, name: str, pairs: list) -> None:
    for side, texts in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        (directory / f"{name}.{side}").write_text("".join(f"{text}\n" for text in texts))


@pytest.mark.parametrize("form", FORMATS)
def test_shards_of_each_format_equal_files_of_lines(tmp_path, kept, form):
    """So do the fingerprints, by which stores are found and resumed runs are checked."""
    for number, start in enumerate(range(0, 25, 9)):
        FORMATS[form](tmp_path / f"part-{number}.{form}", PAIRS[start : start + 9])
    write_parallel(tmp_path, "plain", PAIRS)
    plain = sources.load(config(tmp_path, "plain"), "train")
    for _ in range(2):  # read, then perhaps found in the cache
        found = sources.load(config(tmp_path, f"part-*.{form}"), "train")
        assert [*zip(found.src, found.tgt, strict=True)] == PAIRS
        assert (found.fingerprint, found.sizes) == (plain.fingerprint, plain.sizes)
        assert isinstance(found.src, list) == (kept == "held")
    sent = pickle.loads(pickle.dumps(found.src[3:20]))
    assert [*sent[2:]] == [src for src, _ in PAIRS[5:20]]


@pytest.mark.parametrize("form", FORMATS)
def test_a_row_without_a_text_is_named(tmp_path, kept, form):
    """With its file, its line or row, its column, and what to do."""
    place = f"{tmp_path}/x.{form}" + (": row 12" if form in (*TABLES, "array_record") else
                                      ":13" if form in ("csv", "tsv") else ":12")  # fmt: skip
    if form == "tsv":
        write_tsv(tmp_path / "x.tsv", [*PAIRS[:11], ("a\tb", "c")])
        expected = f"{place}: has 3 columns, but the header 2; correct the row, or remove it"
    elif form == "csv":
        write_csv(tmp_path / "x.csv", PAIRS[:11])
        with (tmp_path / "x.csv").open("a") as file:
            file.write('1,"a "b" c",d\n')
        expected = f"{place}: not comma-separated values: "
    else:
        FORMATS[form](tmp_path / f"x.{form}", [*PAIRS[:11], ("a", None)])
        expected = f"{place}: 'pair.en', the target side, is null, not text; correct the row or rem"
    message = refusal(sources.load, config(tmp_path, f"x.{form}"), "train")
    assert message.startswith(expected)
    assert not [*tmp_path.glob("cache/rows/*.txt*")]


@pytest.mark.parametrize("form", FORMATS)
def test_a_missing_column_is_named_with_those_there_are(tmp_path, form):
    path = tmp_path / f"x.{form}"
    FORMATS[form](path, PAIRS)
    message = refusal(
        sources.load, config(tmp_path, path.name, columns=("source=pair.de",)), "train"
    )
    assert message.startswith(str(path))
    for words in ("'de', the target side", "'pair.en'", "--config.data.columns=target=COLUMN"):
        assert words in message


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"text": "a"', "not JSON: Expecting ',' delimiter (column 13); correct the line, or rem"),
        ('["a"]', 'is a list, not an object such as {"text": "..."}; write each row as one, on a '
         "line of its own, with `jq -c '.[]' x.jsonl` for example"),
        ('{"a": "b"}', "has no key 'text', the target side; it has 'a'; give each row this key"),
        ('{"text": 3.0}', "'text', the target side, is the number 3.0, not text; correct the row"),
        ('{"text": ["a"]}', "'text', the target side, is a list, not text"),
        ('{"text": "a\\ud83d"}', "'text', the target side, has half of a surrogate pair"),
    ],
)  # fmt: skip
def test_malformed_lines_are_named(tmp_path, kept, line, said):
    (tmp_path / "x.jsonl").write_text(f'{{"text": "one"}}\n\n{line}\n')
    one = config(tmp_path, "x.jsonl", columns=("target=text",))
    assert refusal(sources.load, one, "train", LM).startswith(f"{tmp_path}/x.jsonl:3: {said}")


def test_bytes_that_are_not_utf8_are_named(tmp_path):
    (tmp_path / "x.jsonl").write_bytes(b'{"a": "\xc3\xa4"}\n{"a": "\xe4"}\n')
    one = config(tmp_path, "x.jsonl", columns=("target=a",))
    assert ":2: not UTF-8 (byte 0xe4 at column 8)" in refusal(sources.load, one, "train", LM)


@pytest.mark.parametrize("form", ["json.gz", "jsonl.zst", *TABLES, "array_record"])
def test_files_that_are_cut_off_are_named(tmp_path, form):
    path = tmp_path / f"x.{form}"
    FORMATS[form](path, PAIRS)
    path.write_bytes(path.read_bytes()[:-300])
    assert refusal(sources.load, config(tmp_path, path.name), "train").startswith(
        f"{path}: cannot be read"
    )


def test_records_may_be_texts(tmp_path):
    """If the first is no object, and one side is wanted; bytes that are no text are named."""
    path = tmp_path / "x.array_record"
    for records in ([b"one\ntwo", b"{3}"], [b"a", b"\xe4"]):
        writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
        for record in records:
            writer.write(record)
        writer.close()
        if records[0] == b"a":
            said = refusal(sources.load, config(tmp_path, path.name, columns=()), "train", LM)
            assert said.startswith(f"{path}: row 2: not UTF-8 (byte 0xe4 at 1); ")
        else:
            found = sources.load(config(tmp_path, path.name, columns=()), "train", LM)
            assert [*found.tgt] == ["one\ntwo", "{3}"]


def test_the_remedy_for_a_missing_package_is_its_extra(tmp_path, monkeypatch):
    for name, package in (("parquet", "pyarrow"), ("arrow", "pyarrow"), ("jsonl.zst", "zstandard")):
        FORMATS[name](tmp_path / f"x.{name}", PAIRS)
        with monkeypatch.context() as patch:
            for module in (package, "pyarrow.parquet"):
                patch.setitem(sys.modules, module, None)
            message = refusal(sources.load, config(tmp_path, f"x.{name}"), "train")
        assert message == (f"{tmp_path}/x.{name}: needs {package}: pip install {package}")


def test_separated_values_without_a_header_have_numbered_columns(tmp_path):
    (tmp_path / "x.tsv").write_text('"one\teins\n\ntwo"\tzwei\n')
    found = sources.load(config(tmp_path, "x.tsv", columns=("source=2", "target=1")), "train")
    assert (found.src, found.tgt) == (["eins", "zwei"], ['"one', 'two"'])
    assert "has columns 1 to 2, not 3" in refusal(
        sources.load, config(tmp_path, "x.tsv", columns=("source=2", "target=3")), "train"
    )
    assert "name the columns of all sides by numbers, as in source=1,target=2" in refusal(
        sources.load, config(tmp_path, "x.tsv", columns=("source=2",)), "train"
    )


def test_line_breaks_are_spaces_between_two_sides_and_kept_in_one(tmp_path, kept):
    texts = ["a\nb", "c\r\n\nd\u2028e", ""]
    write_json(tmp_path / "x.jsonl", [(text, "x") for text in texts])
    pairs = sources.load(config(tmp_path, "x.jsonl"), "train")
    assert [*pairs.src] == ["a b", "c d\u2028e", ""]
    one = config(tmp_path, "x.jsonl", columns=("target=pair.de",))
    found = sources.load(one, "train", LM)
    assert [*found.tgt] == texts
    write_json(tmp_path / "x.jsonl", [(text, "x") for text in ("a", "b\nc\r\n\nd\u2028e", "")])
    assert sources.load(one, "train", LM).fingerprint != found.fingerprint


def test_a_saved_data_set_is_read_by_its_state(tmp_path, kept):
    """With the names of classes; its splits are folders."""
    data = DataConfig(directory=str(SAVED), validation=("test",),
                      columns=("source=text", "target=label"))  # fmt: skip
    train, held_out = (sources.load(data, split) for split in ("train", "validation"))
    assert [*train.src[:2], *held_out.src] == [
        "Review 0: was it good? 🦊", "Review 1",
        "Review 7: was it good? 🦊", "Review 8", "Review 9",
    ]  # fmt: skip
    assert [*train.tgt] == ["neg", "pos", "neg", "pos", "neg", "pos", "neg"]
    message = refusal(sources.load, config(SAVED.parent, SAVED.name), "train")
    assert "the splits 'train', 'test'; name one, as in saved_dataset/train" in message


def test_labels_may_be_numbers(tmp_path):
    (tmp_path / "x.jsonl").write_text(
        '{"a": "one", "b": 3}\n{"a": "two", "b": true}\n{"a": "3", "b": "-1.5"}\n'
    )
    data = config(tmp_path, "x.jsonl", columns=("source=a", "target=b"))
    found = sources.load(data, "train", ObjectiveConfig("classify"))
    assert found.tgt == ["3", "true", "-1.5"]
    message = refusal(sources.load, data, "train", ObjectiveConfig("regress"))
    assert message.startswith(f"{tmp_path}/x.jsonl:2: 'true' is not a number")


def test_folders_and_patterns_are_read_in_the_order_of_names(tmp_path, kept):
    for name in ("b.py", "a/z.py", "a/y.md", ".hidden", "a/.git/config"):
        (tmp_path / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "code" / name).write_text(f"{name}\n\nend")
    (tmp_path / "code" / "c.jsonl.gz").write_bytes(gzip.compress(b'{"de": "a\\nb"}\n'))
    of = {"code/**/*.py": ["a/z.py", "b.py"], "code/": ["a/y.md", "a/z.py", "b.py"]}
    for part, names in of.items():
        found = sources.load(config(tmp_path, part, columns=()), "train", LM)
        more = ["a\nb"] if part == "code/" else []
        assert [*found.tgt] == [line for name in names for line in (name, "", "end")] + more
    files = ObjectiveConfig("language_model", document="file")
    found = sources.load(config(tmp_path, "code/**/*.py", columns=()), "train", files)
    assert [*found.tgt] == ["a/z.py\n\nend", "b.py\n\nend"]
    message = refusal(sources.load, config(tmp_path, "code/"), "train", files)
    assert f"'file': {tmp_path}/code/c.jsonl.gz has a text in each row; choose 'line'" in message
    message = refusal(sources.load, config(tmp_path, "code/*.rs"), "train", LM)
    assert message.startswith(
        f"config.data.train='code/*.rs': there are no such files in {tmp_path}, which has "
    )
    message = refusal(sources.load, config(tmp_path, "code/d.jsonl"), "train")
    assert "there are no such files" in message
    message = refusal(sources.load, config(tmp_path / "code", "c"), "train")
    assert (
        "Name a file with columns by its whole name, as in --config.data.train=c.jsonl" in message
    )
    message = refusal(sources.load, config(tmp_path, "code/*.py"), "train")
    assert "code/b.py: is plain text, which has no columns for a source and a target" in message


def test_a_changed_or_added_file_changes_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "HELD", -1)
    for number in (1, 2):
        write_json(tmp_path / f"x{number}.jsonl", PAIRS)
    data = config(tmp_path, "x*.jsonl")
    before = sources.load(data, "train")
    write_json(tmp_path / "x3.jsonl", PAIRS)
    with monkeypatch.context() as patch:  # those before are not read again
        patch.setattr(rows, "_content", _only(rows._content, "x3.jsonl"))
        after = sources.load(data, "train")
    assert (len(before), len(after)) == (50, 75)
    assert before.fingerprint != after.fingerprint


def _only(read, name: str):
    def content(path: Path):
        assert path.name == name
        return read(path)

    return content


def test_a_copy_that_is_gone_or_cut_off_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "HELD", -1)
    write_json(tmp_path / "x.jsonl", PAIRS)
    found = sources.load(config(tmp_path, "x.jsonl"), "train")
    assert isinstance(found.src, Copied)
    (copy,) = tmp_path.glob("cache/rows/*.source.txt")
    copy.write_bytes(copy.read_bytes()[:-1])
    assert "is cut off; remove it, and start again" in refusal(list, found.src)
    assert [*sources.load(config(tmp_path, "x.jsonl"), "train").src] == [src for src, _ in PAIRS]
    copy.unlink()
    assert "cannot be read" in refusal(list, found.src)


def read_arrays(place: Path) -> object:
    """Return what Orbax saved as NumPy arrays."""
    with ocp.PyTreeCheckpointer() as reader:
        tree = reader.metadata(place).item_metadata.tree
        kinds = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        return reader.restore(place, restore_args=kinds)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the function (directory, part, steps, columns) -> arrays of the last checkpoint."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs.process, "use_compilation_cache", lambda: None)
        start_at_random(patch)

        def to(directory: Path, part: str, steps: int, columns=SIDES) -> dict[str, np.ndarray]:
            patch.setenv("TRANSFORMER_JAX_CACHE", str(cache / f"{steps}"))  # resumed elsewhere
            data = dataclasses.replace(
                RUN.data, source="text", directory=str(directory), train=(part,),
                validation=(part,), source_language="en", target_language="de", columns=columns,
            )  # fmt: skip
            training = dataclasses.replace(RUN.training, steps=steps)
            experiment = dataclasses.replace(RUN, data=data, training=training)
            workdir = WorkDir(directory / "run")
            assert runs.run_experiment(experiment, workdir) == Outcome.FINISHED
            found = [
                read_arrays(workdir.checkpoints / f"{steps}" / x) for x in ("params", "training")
            ]
            return dict(jax.tree_util.tree_leaves_with_path(found))

        yield to


@pytest.fixture(scope="module")
def whole(run, tmp_path_factory):
    """The last checkpoint of an uninterrupted run on files of lines."""
    place = tmp_path_factory.mktemp("whole")
    write_parallel(place, "x", NUMBERS)
    return run(place, "x", 6, ())


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["jsonl.zst", "parquet"])
def test_a_run_that_stopped_goes_on_to_the_digit(tmp_path, monkeypatch, run, whole, form):
    """With many files and a cold cache, it ends like an uninterrupted one on files of lines, as
    texts, fingerprint and sizes are those of any format.
    """
    monkeypatch.setattr(lines, "HELD", -1)
    for number, start in enumerate(range(0, len(NUMBERS), 60)):
        FORMATS[form](tmp_path / f"x-{number}.{form}", NUMBERS[start : start + 60])
    run(tmp_path, f"x-*.{form}", 3)
    found = run(tmp_path, f"x-*.{form}", 6)
    assert found.keys() == whole.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(found[name], array, str(name))
