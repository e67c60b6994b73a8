"""Input pipeline on a large corpus: from text on disk to batches, without a model.

    python benchmarks/speed/input.py  # 2 million pairs, in a few minutes
    python benchmarks/speed/input.py --pairs=36000000  # as many as WMT14 English-French has
    python benchmarks/speed/input.py --source=spelled_numbers  # spelled on each core when read
    python benchmarks/speed/input.py --pairs=1000000 --formats=jsonl,parquet  # only read, from each

Pairs come from the built-in source, spelled-out numbers in German and English: lines are sampled
from 20,000 of them, so that a file of any size is written quickly. A tokenizer of 1,000 pieces is
trained on these. Each stage runs in its own process and reports its peak memory: in total, without
file pages (which the kernel reclaims), and of the largest child process. `alone` reads the text for
the first time, finds its lines and its fingerprint, and encodes a part of it on one core. Then all
cores encode the whole text, are killed (SIGKILL) halfway, and resume. `warm` starts with all of
that in place: the text is not read, the store is verified against its checksums, and batches are
planned and read. One JSON line per stage.

With `--formats`, pairs that all differ are written in each of these formats and only read: `read`
for the first time, which copies them into the cache, `again` from there.
"""

import argparse
import csv
import gzip
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import zstandard
from array_record.python import array_record_module
from turns import show, show_processor

from transformer_jax.config import DataConfig, ObjectiveConfig, TokenizerConfig
from transformer_jax.data import sources
from transformer_jax.data.batches.batching import PLANS, BatchSource, filled
from transformer_jax.data.codecs.pair import TokenizerPair, train_pair
from transformer_jax.data.objectives import Translate
from transformer_jax.data.sources import Corpus, spelled_numbers
from transformer_jax.data.store import token_store
from transformer_jax.data.store.encoding import cores

POOL = 20_000  # numbers that lines are sampled from
LINES = 200_000  # written at a time
ALONE = 400_000  # pairs encoded on one core
SECONDS = 10.0  # of reading batches


def data_of(arguments: argparse.Namespace, pairs: int | None = None) -> DataConfig:
    """Return the data configuration of the pairs."""
    return DataConfig(
        source=arguments.source, directory=str(arguments.place), source_language="de",
        target_language="en", num_examples=(pairs or arguments.pairs, 500, 500),
    )  # fmt: skip


def make(arguments: argparse.Namespace) -> dict[str, Any]:
    """Write the text, if that is the source, and train a tokenizer."""
    pool = DataConfig(source="spelled_numbers", source_language="de", target_language="en",
                      num_examples=(POOL, 1, 1))  # fmt: skip
    began = time.perf_counter()
    sides = dict(zip(("de", "en"), spelled_numbers.load(pool, "train"), strict=True))
    found = {"spelled_pairs_per_s_per_core": round(POOL / (time.perf_counter() - began))}
    if arguments.source == "text":
        for language, numbers in sides.items():
            chosen = np.random.default_rng(0)
            with open(arguments.place / f"train.{language}", "w") as file:
                for start in range(0, arguments.pairs, LINES):
                    count = min(LINES, arguments.pairs - start)
                    lines = (f"{numbers[i]}\n" for i in chosen.integers(0, POOL, count).tolist())
                    file.writelines(lines)
        found["text_gb"] = gigabytes(*arguments.place.glob("train.*"))
    pair = train_pair(TokenizerConfig(vocab_size=1000), sides["de"], sides["en"])
    pair.save(arguments.place)
    return found


def write_json(path: Path, opened: Any, blocks: Iterator[list[tuple[str, str]]]) -> None:
    """Write pairs as JSON lines."""
    with opened(path, "wb") as file:
        for pairs in blocks:
            rows = (json.dumps({"de": a, "en": b}, ensure_ascii=False) for a, b in pairs)
            file.write("".join(f"{row}\n" for row in rows).encode())


def write_csv(path: Path, blocks: Iterator[list[tuple[str, str]]], separator: str) -> None:
    """Write pairs between separators."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(("de", "en"))
        for pairs in blocks:
            writer.writerows(pairs)


def write_table(path: Path, opened: Any, blocks: Iterator[list[tuple[str, str]]]) -> None:
    """Write pairs as a Parquet or an Arrow file."""
    schema = pa.schema({"de": pa.string(), "en": pa.string()})
    with opened(path, schema) as file:
        for pairs in blocks:
            file.write_table(pa.table([*map(list, zip(*pairs, strict=True))], schema=schema))


def write_texts(path: Path, blocks: Iterator[list[tuple[str, str]]]) -> None:
    """Write the second side of pairs as plain text."""
    with path.open("w") as file:
        for pairs in blocks:
            file.writelines(f"{tgt}\n" for _, tgt in pairs)


def write_records(path: Path, blocks: Iterator[list[tuple[str, str]]]) -> None:
    """Write pairs as the records of an ArrayRecord file."""
    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1000")
    for pairs in blocks:
        for src, tgt in pairs:
            writer.write(json.dumps({"de": src, "en": tgt}).encode())
    writer.close()


def write_saved(path: Path, blocks: Iterator[list[tuple[str, str]]]) -> None:
    """Write pairs as `save_to_disk` of Hugging Face `datasets` does, a file for each block."""
    path.mkdir()
    names = []
    for number, pairs in enumerate(blocks):
        names.append(f"data-{number:05d}.arrow")
        write_table(path / names[-1], pa.ipc.new_stream, iter([pairs]))
    files = [{"filename": name} for name in names]
    (path / "state.json").write_text(json.dumps({"_data_files": files}))


FORMATS: dict[str, Callable[[Path, Iterator[list[tuple[str, str]]]], None]] = {
    "jsonl": lambda path, pairs: write_json(path, open, pairs),
    "json.gz": lambda path, pairs: write_json(path, gzip.open, pairs),
    "jsonl.zst": lambda path, pairs: write_json(path, zstandard.open, pairs),
    "csv": lambda path, pairs: write_csv(path, pairs, ","),
    "tsv": lambda path, pairs: write_csv(path, pairs, "\t"),
    "parquet": lambda path, pairs: write_table(path, pyarrow.parquet.ParquetWriter, pairs),
    "arrow": lambda path, pairs: write_table(path, pa.ipc.new_file, pairs),
    "array_record": write_records,
    "saved": write_saved,
    "txt": write_texts,
}


def write(arguments: argparse.Namespace) -> dict[str, Any]:
    """Write pairs that all differ in a format."""
    pool = DataConfig(source="spelled_numbers", source_language="de", target_language="en",
                      num_examples=(POOL, 1, 1))  # fmt: skip
    pairs = [*zip(*spelled_numbers.load(pool, "train"), strict=True)]

    def blocks() -> Iterator[list[tuple[str, str]]]:
        for start in range(0, arguments.pairs, LINES):
            numbers = range(start, min(start + LINES, arguments.pairs))
            yield [(f"{i} {pairs[i % POOL][0]}", f"{i} {pairs[i % POOL][1]}") for i in numbers]

    path = arguments.place / f"all.{arguments.formats}"
    FORMATS[arguments.formats](path, blocks())
    return {"text_gb": gigabytes(*(path.iterdir() if path.is_dir() else [path]))}


def read(arguments: argparse.Namespace) -> dict[str, Any]:
    """Read the pairs of a format, or its texts if it has no columns."""
    config = DataConfig(directory=str(arguments.place), train=(f"all.{arguments.formats}",),
                        source_language="de", target_language="en")  # fmt: skip
    one_sided = arguments.formats == "txt"
    objective = ObjectiveConfig("language_model" if one_sided else "translate")
    began, cpu = time.perf_counter(), time.process_time()
    corpus = sources.load(config, "train", objective)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert len(corpus) == arguments.pairs
    found = {"load_s": round(seconds, 2), "cpu_s": round(cpu, 2)}
    if arguments.stage == "read":
        found["rows_per_s"] = round(arguments.pairs / seconds)
    return found


def gigabytes(*paths: Path) -> float:
    """Return the total size of files."""
    return round(sum(path.stat().st_size for path in paths) / 1e9, 3)


def open_pairs(
    arguments: argparse.Namespace, processes: int | None = None
) -> tuple[Corpus, token_store.TokenStore, dict[str, float]]:
    """Return the pairs, their store, and the seconds that each took to open."""
    began = time.perf_counter()
    corpus = sources.load(data_of(arguments), "train")
    loaded = time.perf_counter()
    tokenizers = TokenizerPair.load(arguments.place, joint=True)
    store = token_store.open_store(corpus, tokenizers, arguments.place, processes=processes)
    seconds = {"load_s": loaded - began, "store_s": time.perf_counter() - loaded}
    return corpus, store, {name: round(x, 2) for name, x in seconds.items()}


def alone(arguments: argparse.Namespace) -> dict[str, Any]:
    """Read the text for the first time, then encode a part of it in one process."""
    began = time.perf_counter()
    corpus = sources.load(data_of(arguments), "train")
    found = {"load_s": round(time.perf_counter() - began, 2), "processes": 1}
    few = min(ALONE, arguments.pairs)
    part = Corpus(corpus.src[:few], corpus.tgt[:few], "part")
    tokenizers = TokenizerPair.load(arguments.place, joint=True)
    began = time.perf_counter()
    token_store.open_store(part, tokenizers, arguments.place / "part", processes=1)
    return found | {"pairs_per_s": round(few / (time.perf_counter() - began))}


def encode(arguments: argparse.Namespace) -> dict[str, Any]:
    """Encode the text on all cores."""
    return open_pairs(arguments)[2]


def warm(arguments: argparse.Namespace) -> dict[str, Any]:
    """Open the existing store, plan batches and read them."""
    _, store, found = open_pairs(arguments)
    config, began = data_of(arguments), time.perf_counter()
    selection = token_store.select(store, config)
    plan = PLANS[arguments.batching](store, selection.pairs, config, 0)
    plan.batch(0)  # the order of the first epoch
    planned = time.perf_counter()
    positions, tokens = filled(store, plan)
    found["plan_s"], found["count_s"] = planned - began, time.perf_counter() - planned
    source, read, count, began = BatchSource(store, plan, Translate()), 0, 0, time.perf_counter()
    while time.perf_counter() < began + SECONDS:
        read += int(source[count].targets["tokens"].weight.sum())
        count += 1
    rate = read / (time.perf_counter() - began)
    return {name: round(x, 2) for name, x in found.items()} | {
        "batching": arguments.batching, "kept": len(selection.pairs), "batches": len(plan),
        "padding": round(1 - tokens / positions, 4),
        "target_pieces_a_pair": round(tokens / len(selection.pairs), 2),
        "target_tokens_per_s": round(rate),
    }  # fmt: skip


class Peak(threading.Thread):
    """Peak memory of this process without file pages, which the kernel can reclaim."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.gigabytes, self._ended = 0.0, threading.Event()

    def run(self) -> None:
        """Sample it ten times a second."""
        while not self._ended.wait(0.1):
            (found,) = re.findall(r"RssAnon:\s*(\d+)", Path("/proc/self/status").read_text())
            self.gigabytes = max(self.gigabytes, int(found) / 1e6)

    def __enter__(self) -> "Peak":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()


STAGES: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "make": make, "alone": alone, "encode": encode, "warm": warm,
}  # fmt: skip
READING = {"write": write, "read": read, "again": read}  # with --formats


def command(arguments: argparse.Namespace, stage: str) -> list[str]:
    """Return the command that runs a stage in its own process."""
    fields = "pairs", "source", "batching", "place", "formats"
    given = [f"--{name}={getattr(arguments, name)}" for name in fields]
    return [sys.executable, __file__, *given, f"--stage={stage}"]


def run(arguments: argparse.Namespace, stage: str) -> None:
    """Run a stage, which prints its line."""
    subprocess.run(command(arguments, stage), check=True, env=environment(arguments))


def environment(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the environment, with a separate cache."""
    return os.environ | {"TRANSFORMER_JAX_CACHE": str(arguments.place)}


def rows_of(place: Path) -> int:
    """Return the number of lines, of both sides, in a store that is being written."""
    rows = [path.read_text().splitlines() for path in place.glob("tokens/*.partial/*.journal")]
    return sum(json.loads(found[-1])[0] for found in rows if found)


def kill_and_resume(arguments: argparse.Namespace) -> None:
    """Kill an encoding halfway, then resume it."""
    began, first = time.perf_counter(), None
    process = subprocess.Popen(command(arguments, "encode"), env=environment(arguments))
    while (done := rows_of(arguments.place)) < arguments.pairs and process.poll() is None:
        time.sleep(0.05)
        first = first or (time.perf_counter() if done else None)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept, half = rows_of(arguments.place), time.perf_counter()
    print_row({"stage": "killed", "lines": 2 * arguments.pairs, "kept": kept,
               "s": round(half - began, 2)}, arguments)  # fmt: skip
    process = subprocess.Popen(command(arguments, "encode"), env=environment(arguments))
    while rows_of(arguments.place) <= kept and process.poll() is None:
        time.sleep(0.05)
    resumed = time.perf_counter()
    process.wait()
    rate = (2 * arguments.pairs - kept) / 2 / (time.perf_counter() - half)
    print_row({"stage": "resumed", "first_new_lines_after_s": round(resumed - half, 2),
               "processes": len(cores()), "pairs_per_s": round(rate)}, arguments)  # fmt: skip


def print_row(row: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Print a row as one JSON line."""
    given = {"source": arguments.source}
    if arguments.formats:
        given = {"format": arguments.formats}
    row = {"stage": row.pop("stage"), **given, "pairs": arguments.pairs} | row
    show(row)


def main() -> None:
    """Run one stage, or each in its own process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=2_000_000)
    parser.add_argument("--source", choices=("text", "spelled_numbers"), default="text")
    parser.add_argument("--batching", choices=tuple(PLANS), default="bucket")
    parser.add_argument("--formats", default="", help=f"of {', '.join(FORMATS)}")
    parser.add_argument("--place", type=Path, help="directory for all files, which are kept")
    parser.add_argument("--stage", choices=(*STAGES, *READING))
    arguments = parser.parse_args()
    show_processor()
    if arguments.stage is not None:
        if arguments.stage == "alone":
            os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
        began = time.perf_counter()
        with Peak() as peak:
            row = {"stage": arguments.stage, **(STAGES | READING)[arguments.stage](arguments)}
        row["s"] = round(time.perf_counter() - began, 2)
        row["anonymous_gb"] = round(peak.gigabytes, 3)
        for name, who in (
            ("peak_gb", resource.RUSAGE_SELF),
            ("child_gb", resource.RUSAGE_CHILDREN),
        ):
            row[name] = round(resource.getrusage(who).ru_maxrss / 1e6, 3)
        print_row(row, arguments)
        return
    with tempfile.TemporaryDirectory() as directory:
        arguments.place = arguments.place or Path(directory)
        arguments.place.mkdir(parents=True, exist_ok=True)
        if arguments.formats:
            for name in arguments.formats.split(","):
                arguments.formats = name
                for stage in READING:
                    run(arguments, stage)
            return
        for stage in ("make", "alone"):
            run(arguments, stage)
        kill_and_resume(arguments)
        run(arguments, "warm")


if __name__ == "__main__":
    main()
