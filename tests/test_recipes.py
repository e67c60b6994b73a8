"""The commands of docs/recipes.md as a new user follows them: every one, in order, on a few files
of the form that its recipe describes, with tiny sizes.
"""

import csv
import gzip
import io
import json
import random
import re
import shlex
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from transformer_jax.cli import evaluate, train
from transformer_jax.cli.main import dispatch

PAGE = Path(__file__).parents[1] / "docs" / "recipes.md"
TINY = (
    "--config.training.steps=2", "--config.training.log_every=1",
    "--config.optimizer.warmup_steps=1", "--config.checkpoint.every_steps=2",
    "--config.evaluation.every_steps=2", "--config.model.d_model=16", "--config.model.d_ff=16",
    "--config.model.num_heads=2", "--config.model.compute_dtype=float32",
)  # fmt: skip
WORDS = ("a", "the", "dog", "cat", "runs", "sleeps", "sees", "house", "red", "blue", "and")


def recipes() -> dict[str, list[str]]:
    """Return {title: commands}, each on one line."""
    parts = (part.partition("\n") for part in PAGE.read_text("utf-8").split("\n## ")[1:])
    found = {title: re.findall(r"^ {4}(.*)", body.replace("\\\n", " "), re.M)
             for title, _, body in parts}  # fmt: skip
    return {title: commands for title, commands in found.items() if commands}


def sentences(count: int, seed: int = 0) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(4, 9))) for _ in range(count)]


def lines(path: str, rows: list[str]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def table(path: str, header: list[str], rows: list) -> None:
    out = io.StringIO()
    csv.writer(out).writerows([header, *rows])
    lines(path, [out.getvalue().rstrip("\n")])


# --- what the recipes say that a user has, in DIR -----------------------------------------------


def pairs() -> None:
    for part, count in (("train", 400), ("validation", 20)):
        lines(f"DIR/{part}.tsv", [f"{x}\t{x.upper()}" for x in sentences(count)])
    lines("new.txt", sentences(2))


def code() -> None:
    for place, count in (("code/a", 3), ("code/b/c", 3), ("held_out", 1)):
        for i in range(count):
            body = [f"def main({word}):\n    return {word}" for word in WORDS]
            lines(f"DIR/{place}/f{i}.py", body)


def json_lines() -> None:
    rows = [json.dumps({"id": i, "text": x}) for i, x in enumerate(sentences(600))]
    Path("DIR/corpus").mkdir(parents=True)
    for i in range(2):
        text = "\n".join(rows[i::2]).encode()
        Path(f"DIR/corpus/{i}.jsonl.gz").write_bytes(gzip.compress(text))
    lines("DIR/held_out.jsonl", rows[:40])
    lines("FILE", sentences(2))


def reviews() -> None:
    for part, count in (("train", 300), ("validation", 20)):
        rows = [(f"{x}, she said", ("good", "bad")["dog" in x]) for x in sentences(count)]
        table(f"DIR/{part}.csv", ["review", "sentiment"], rows)
    lines("new.txt", sentences(2))


def hugging_face() -> None:
    """As `save_to_disk` writes it: a folder for each split."""
    pa = pytest.importorskip("pyarrow")
    for part, count in (("train", 300), ("test", 20)):
        place = Path("DIR") / part
        place.mkdir(parents=True)
        texts = sentences(count)
        rows = {"text": texts, "label": [int("dog" in x) for x in texts]}
        data = pa.table(rows)
        with pa.ipc.new_stream(place / "data-00000-of-00001.arrow", data.schema) as file:
            file.write_table(data)
        features = {"text": {"dtype": "string", "_type": "Value"},
                    "label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}  # fmt: skip
        (place / "dataset_info.json").write_text(json.dumps({"features": features}))
        state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": part}
        (place / "state.json").write_text(json.dumps(state))


def pictures() -> None:
    rng = np.random.default_rng(0)
    for part, count in (("train", 12), ("validation", 3)):
        for i, label in enumerate(("circle", "square")):
            for j in range(count):
                place = Path(f"DIR/{part}/{label}")
                place.mkdir(parents=True, exist_ok=True)
                pixels = rng.integers(0, 128, (40 + j, 50, 3)) + 100 * i
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{j}.png")
    Path("FOLDER").symlink_to("DIR/validation/circle")


def recordings() -> None:
    rng = np.random.default_rng(0)
    for part, count in (("train", 12), ("validation", 3)):
        Path(f"DIR/{part}").mkdir(parents=True)
        for i in range(count):
            with wave.open(f"DIR/{part}/{i}.wav", "wb") as file:
                file.setparams((1, 2, 16000, 0, "NONE", ""))
                file.writeframes(rng.normal(0, 3000, 16000).astype(np.int16).tobytes())
        lines(f"DIR/{part}.tsv", [f"{i}.wav\t{('yes', 'no')[i % 2]}" for i in range(count)])
    Path("FOLDER").symlink_to("DIR/validation")


def sales() -> None:
    days = np.datetime64("2019-01-01") + np.arange(1600)
    rows = [(day, 10 + i % 7, 5 + i % 30) for i, day in enumerate(days)]
    table("DIR/sales.csv", ["date", "shop", "online"], rows)


def tags() -> None:
    for part, count in (("train", 400), ("validation", 20)):
        words = sentences(count)
        lines(f"DIR/{part}.words", words)
        labels = (("B-PET" if word in ("dog", "cat") else "O" for word in x.split()) for x in words)
        lines(f"DIR/{part}.tags", [" ".join(row) for row in labels])
    lines("new.txt", sentences(2))


def questions() -> None:
    for part, count in (("train", 300), ("validation", 20)):
        texts = [f"{x} house" for x in sentences(count)]
        lines(f"DIR/{part}.question", [f"Who runs?\t{x}" for x in texts])
        lines(f"DIR/{part}.answer", [f"{x.index('house')}\thouse" for x in texts])


def stars() -> None:
    for part, count in (("train", 300), ("validation", 20)):
        rows = [(x, len(x.split()) / 2) for x in sentences(count)]
        table(f"DIR/{part}.csv", ["text", "stars"], rows)
    lines("new.txt", sentences(2))


def documents() -> None:
    for part, count in (("train", 300), ("validation", 20), ("test", 20)):
        texts = [(". ".join(sentences(3, seed=i)), x) for i, x in enumerate(sentences(count))]
        lines(f"DIR/{part}.jsonl", [json.dumps({"document": x, "summary": y}) for x, y in texts])
    lines("new.txt", sentences(2))


PIECES = "--config.tokenizer.vocab_size=64"
ENCODER = "--config.model.num_encoder_layers=1"
DECODER = "--config.model.num_decoder_layers=1"
DATA = {
    "Translate sentence pairs": (pairs, PIECES, ENCODER, DECODER),
    "A language model of code": (code, DECODER),
    "A language model of JSON lines": (json_lines, PIECES, DECODER),
    "Classify texts in a table": (reviews, PIECES, ENCODER),
    "A Hugging Face data set": (hugging_face, PIECES, ENCODER),
    "Summarise documents": (documents, PIECES, ENCODER, DECODER),
    "Classify pictures in folders": (pictures, ENCODER),
    "Transcribe recordings": (recordings, ENCODER),
    "Forecast a table of dates": (sales, ENCODER),
    "Label the words of sentences": (tags, PIECES, ENCODER),
    "Answer questions about texts": (questions, PIECES, ENCODER),
    "Predict a number": (stars, PIECES, ENCODER),
}


def follow(command: str, overrides: tuple[str, ...], monkeypatch, capsys) -> str:
    """Run a command as a shell would, and return what it prints."""
    piped, _, last = command.rpartition(" | ")
    command, _, given = last.partition(" < ")
    words = shlex.split(command)
    text = Path(given).read_text("utf-8") if given else ""
    if piped:
        how, text = shlex.split(piped)
        text = text.replace("\\t", "\t").replace("\\n", "\n") if how == "printf" else f"{text}\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8"))
    capsys.readouterr()
    if words[:2] == ["python", "train.py"]:
        assert train.main([*words[2:], *overrides]) == 0
    elif words[:2] == ["python", "eval.py"]:
        assert evaluate.main(words[2:]) == 0
    else:
        assert words[0] == "transformer-jax"
        assert dispatch(words[1:]) == 0
    return capsys.readouterr().out


def test_each_recipe_has_data_here():
    assert recipes().keys() == DATA.keys()


@pytest.mark.thorough
@pytest.mark.parametrize("title", DATA)
def test_a_recipe_works_word_for_word(title, tmp_path, monkeypatch, capsys):
    make, *own = DATA[title]
    monkeypatch.chdir(tmp_path)
    make()
    before = set(Path().rglob("*"))
    for command in recipes()[title]:
        printed = follow(command, (*TINY, *own), monkeypatch, capsys)
        named = [Path(x) for x in re.findall(r"--(?:output|plot)=(\S+)", command)]
        assert all(path.stat().st_size for path in named), command
        assert printed or named or "train.py" in command, command
    assert set(Path().rglob("*")) > before
