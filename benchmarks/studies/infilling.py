"""How often a line taken out of Python code is written back, with and without what follows.

    python benchmarks/studies/infilling.py --workdir=runs/code --output=results/infilling.json

From each file of the test part, lines are taken out at random: of those that are not blank, with
enough of the file on either side. The model writes greedily up to the end of the line, once given
what precedes and follows, once what precedes only. Beside it, what needs no model: the line before
again, the commonest line after the line before, and the commonest between both neighbours, in the
training files. A line counts as written back if it is the same but for spaces at its ends.
"""

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from transformer_jax.api import load
from transformer_jax.base.disk import write_text
from transformer_jax.data.sources import load as corpus

_CHARACTERS = 100  # of context on each side, at most; together with a line, less than a window
_LINE = 40  # characters of a line, at most


class Gap(NamedTuple):
    """A line, and what stands around it."""

    before: str  # ends with a line break
    line: str
    after: str
    previous: str
    next: str


def gaps(files: Sequence[str], count: int, chance: random.Random) -> list[Gap]:
    """Return up to `count` gaps, drawn from all lines that are short and not blank."""
    found = []
    for text in files:
        lines = text.split("\n")
        for i in range(1, len(lines) - 1):
            if lines[i].strip() and len(lines[i]) <= _LINE:
                before, after = "\n".join(lines[:i]) + "\n", "\n" + "\n".join(lines[i + 1 :])
                around = before[-_CHARACTERS:], lines[i], after[:_CHARACTERS]
                found.append(Gap(*around, lines[i - 1].strip(), lines[i + 1].strip()))
    return sorted(chance.sample(found, min(count, len(found))), key=lambda gap: gap.before)


def controls(files: Iterable[str], asked: Sequence[Gap]) -> dict[str, float]:
    """Return the share of lines, in percent, that each trivial method writes back."""
    follows: dict[Hashable, Counter[str]] = defaultdict(Counter)
    for text in files:
        lines = [line.strip() for line in text.split("\n")]
        for one, line, other in zip(lines, lines[1:], lines[2:], strict=False):
            if line:
                follows[one][line] += 1
                follows[one, other][line] += 1

    def commonest(key: Hashable, otherwise: str = "") -> str:
        return follows[key].most_common(1)[0][0] if follows[key] else otherwise

    methods = {
        "the line before": lambda gap: gap.previous,
        "commonest after it": lambda gap: commonest(gap.previous),
        "commonest between both": lambda gap: commonest(
            (gap.previous, gap.next), commonest(gap.previous)
        ),
    }
    return {name: _share([method(gap) for gap in asked], asked) for name, method in methods.items()}


def _share(written: Iterable[str], asked: Sequence[Gap]) -> float:
    same = [one.strip() == gap.line.strip() for one, gap in zip(written, asked, strict=True)]
    return round(100 * sum(same) / len(same), 2)


def main() -> None:
    """Take lines out, have them written, and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--checkpoint", help="best, last, a step or average:N")
    parser.add_argument("--split", default="test", choices=("validation", "test"))
    parser.add_argument("--count", type=int, default=1000, help="lines; default: %(default)s")
    parser.add_argument("--output", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    trained = load(arguments.workdir, arguments.checkpoint)
    data, objective = trained.experiment.data, trained.experiment.objective
    files = [*corpus(data, arguments.split, objective).tgt]
    asked = gaps(files, arguments.count, random.Random(0))
    generator, shares = trained.generator(), {}
    prompts = {"without suffix": [[*generator.reader.read(gap.before)] for gap in asked]}
    if objective.fim_rate:
        prompts["with suffix"] = [generator.reader.gap(gap.before, gap.after) for gap in asked]
    for name, read in prompts.items():
        texts = generator.generate(trained.params, read, _LINE + 1)
        begun = 0 if name == "with suffix" else None
        lines = [
            one.text[len(gap.before) if begun is None else begun :].split("\n")[0]
            for (one,), gap in zip(texts, asked, strict=True)
        ]
        shares[name] = _share(lines, asked)
        print(f"{name}: {shares[name]} %", flush=True)
    shares |= controls(corpus(data, "train", objective).tgt, asked)
    row = {"workdir": str(arguments.workdir), "split": arguments.split, "lines": len(asked),
           "exact match, %": shares}  # fmt: skip
    print(json.dumps(row, indent=1))
    if arguments.output:
        write_text(arguments.output, json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()
