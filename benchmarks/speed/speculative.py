"""Greedy speculative decoding against plain greedy decoding, with one model in one run.

    python benchmarks/speed/speculative.py --workdir=runs/multi30k --source=FILE \
      --draft=runs/one_layer --draft=ngram [--draft-length=2,4,8] [--rows=1]

Lines of FILE are translated, or continued by a language model (at most --max-tokens pieces each),
--rows at a time; drafts pay off with few. Engines run in separate processes and take turns in one
run; the median of each one's rounds counts, excluding the first call, which compiles. Texts must be
those of plain greedy decoding, or this ends with an error; up to --ties may differ, as float32
rounding differs between a pass over one token and over several. One JSON line per engine.
"""

import argparse
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "2")

from turns import Run, Worker, show, show_processor, take_turns

from transformer_jax.api import load
from transformer_jax.config import DecodingConfig
from transformer_jax.data.sources.files import read_lines
from transformer_jax.experiments.process import keep_freed_memory

PLAIN = "greedy"


def engine(arguments: argparse.Namespace, draft: str | None, length: int) -> Run:
    """Return the work of one turn: texts, pieces generated, and draft statistics."""
    keep_freed_memory()  # as translate and generate do
    trained = load(arguments.workdir)
    lines = read_lines(arguments.source)[: arguments.sentences]
    decoding = DecodingConfig(
        beam_size=1, tokens_per_batch=arguments.rows * max(map(len, lines)),
        draft=draft, draft_length=length if draft else DecodingConfig.draft_length,
    )  # fmt: skip
    writes = trained.experiment.objective.translates
    writer: Any = trained.translator(decoding) if writes else trained.generator(decoding)
    batches = [lines[i : i + arguments.rows] for i in range(0, len(lines), arguments.rows)]

    def found(batch: list[str]) -> list[Any]:
        if writes:
            return writer.translate(trained.params, batch)
        return [x[0] for x in writer.generate(trained.params, batch, arguments.max_tokens)]

    def run() -> tuple[list[str], int, dict[str, Any]]:
        writer.acceptance = type(writer.acceptance)()
        written = [item for batch in batches for item in found(batch)]
        pieces = sum(len(item.ids) for item in written)
        return [item.text for item in written], pieces, writer.acceptance.as_dict()

    return run


def main() -> None:
    """Measure, and print one JSON line per engine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workdir", required=True, help="work directory of the model")
    parser.add_argument("--source", required=True, type=Path, help="lines of text")
    parser.add_argument("--draft", action="append", required=True, help="as config.decoding.draft")
    parser.add_argument("--draft-length", default="4", help="comma-separated numbers")
    parser.add_argument("--rows", type=int, default=1, help="sentences at a time")
    parser.add_argument("--sentences", type=int, default=50)
    parser.add_argument("--max-tokens", type=int, default=48, help="per line, for a language model")
    parser.add_argument("--ties", type=int, default=0, help="texts that may differ")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    show_processor()
    lengths = [int(text) for text in arguments.draft_length.split(",")]
    engines: dict[str, tuple[str | None, int]] = {PLAIN: (None, 0)}
    engines |= {f"{draft}:{n}": (draft, n) for draft in arguments.draft for n in lengths}
    workers = {name: Worker(engine, arguments, *given) for name, given in engines.items()}
    middle = take_turns(workers, arguments.rounds)
    expected = workers[PLAIN].result[0]
    for name, seconds in middle.items():
        texts, pieces, figures = workers[name].result
        row = {
            "engine": name,
            "target_tokens_per_s": round(pieces / seconds, 1),
            "first_call_s": round(workers[name].first_seconds, 2),
        }
        if name != PLAIN:
            different = sum(map(str.__ne__, texts, expected))
            if different > arguments.ties:
                raise SystemExit(f"{name}: {different} texts differ from those of greedy decoding")
            row |= {
                "speed_up": round(middle[PLAIN] / seconds, 3),
                "tokens_per_pass": round(figures["tokens_per_pass"], 3),
                "acceptance_rate": round(figures["acceptance_rate"], 4),
                "texts_that_differ": different,
            }
        show(row)


if __name__ == "__main__":
    main()
