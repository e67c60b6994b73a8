"""Input pipeline on a large corpus: from text on disk to batches, without a model.

    python benchmarks/speed/input.py  # 2 million pairs, in a few minutes
    python benchmarks/speed/input.py --pairs=36000000  # as many as WMT14 English-French has
    python benchmarks/speed/input.py --source=spelled_numbers  # spelled on each core when read

Pairs come from the built-in source, spelled-out numbers in German and English: lines are sampled
from 20,000 of them, so that a file of any size is written quickly. A tokenizer of 1,000 pieces is
trained on these. Each stage runs in its own process and reports its peak memory: in total, without
file pages (which the kernel reclaims), and of the largest child process. `alone` reads the text for
the first time, finds its lines and its fingerprint, and encodes a part of it on one core. Then all
cores encode the whole text, are killed (SIGKILL) halfway, and resume. `warm` starts with all of
that in place: the text is not read, the store is verified against its checksums, and batches are
planned and read. One JSON line per stage.
"""

import argparse
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.config import DataConfig, TokenizerConfig
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


def command(arguments: argparse.Namespace, stage: str) -> list[str]:
    """Return the command that runs a stage in its own process."""
    fields = "pairs", "source", "batching", "place"
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
    row = {"stage": row.pop("stage"), "source": arguments.source, "pairs": arguments.pairs} | row
    print(json.dumps(row), flush=True)


def main() -> None:
    """Run one stage, or each in its own process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=2_000_000)
    parser.add_argument("--source", choices=("text", "spelled_numbers"), default="text")
    parser.add_argument("--batching", choices=tuple(PLANS), default="bucket")
    parser.add_argument("--place", type=Path, help="directory for all files, which are kept")
    parser.add_argument("--stage", choices=tuple(STAGES))
    arguments = parser.parse_args()
    if arguments.stage is not None:
        if arguments.stage == "alone":
            os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
        began = time.perf_counter()
        with Peak() as peak:
            row = {"stage": arguments.stage, **STAGES[arguments.stage](arguments)}
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
        for stage in ("make", "alone"):
            run(arguments, stage)
        kill_and_resume(arguments)
        run(arguments, "warm")


if __name__ == "__main__":
    main()
