"""BLEU by length, beyond the training lengths: the text and the plot of configs/lengths.py.

    python benchmarks/studies/lengths.py text --tatoeba=DIR --multi30k=DIR --output=PLACE
    python benchmarks/studies/lengths.py picture SWEEP --output=results/lengths

`text` joins sentences of one corpus, in random order, to random lengths: train.en and train.de of 1
to 24 English words, from train.* of both; validation.* of the same lengths and test.* of 1 to 100
words, from Tatoeba's dev.* and Multi30k's val.*. `picture` reads the work directories of a sweep
over all variants, each scored on the test split as whole texts (--config.data.max_length=128) and,
optionally, in parts of training length, as `translate` reads longer texts. It plots BLEU of texts
grouped by the pieces of their source, with dotted lines for parts; OUTPUT.json has the figures.
"""

import argparse
import bisect
import json
import random
import runpy
from pathlib import Path
from typing import Any

from transformer_jax.api import load
from transformer_jax.base.disk import write_text
from transformer_jax.base.errors import UserError
from transformer_jax.data.sources.files import read_lines
from transformer_jax.evaluation.sentences import corpus_bleu
from transformer_jax.plots.picture import save

CONFIG = Path(__file__).parents[2] / "configs/lengths.py"
EDGES = (16, 32, 48, 64, 80, 96, 112, 128)  # largest number of pieces in a group, including EOS
TRAINED = 32
WHOLE = f"data.max_length={EDGES[-1]}"
Pairs = list[tuple[str, str]]


def read_pairs(directory: Path, part: str) -> Pairs:
    """Return English and German lines from plain or .gz files."""
    plain = [directory / f"{part}.{language}" for language in ("en", "de")]
    sides = [read_lines(path if path.exists() else Path(f"{path}.gz")) for path in plain]
    return list(zip(*sides, strict=True))


def joined(pairs: Pairs, count: int, longest: int, chance: random.Random) -> Pairs:
    """Return `count` texts of consecutive pairs, each filled up to a number of English words drawn
    between 1 and `longest`; the pairs are reshuffled whenever they run out.
    """
    found: Pairs = []
    left: Pairs = []
    while len(found) < count:
        wanted, text = chance.randint(1, longest), []
        while not text or sum(len(one.split()) for one, _ in text) < wanted:
            left = left or chance.sample(pairs, len(pairs))
            text.append(left.pop())
        if sum(len(one.split()) for one, _ in text) <= longest:
            found.append((" ".join(one for one, _ in text), " ".join(two for _, two in text)))
    return found


def make_text(arguments: argparse.Namespace) -> None:
    """Write the three splits."""
    chance = random.Random(0)
    places = {"train": ("train", "train"), "held out": ("dev", "val")}
    corpora = {
        split: [read_pairs(arguments.tatoeba, one), read_pairs(arguments.multi30k, other)]
        for split, (one, other) in places.items()
    }
    arguments.output.mkdir(parents=True, exist_ok=True)
    for split, source, count, longest in (
        ("train", "train", arguments.lines, 24),
        ("validation", "held out", 1000, 24),
        ("test", "held out", 1000, 100),
    ):
        texts = [text for pairs in corpora[source]
                 for text in joined(pairs, count // 2, longest, chance)]  # fmt: skip
        chance.shuffle(texts)
        for language, lines in zip(("en", "de"), zip(*texts, strict=True), strict=True):
            write_text(arguments.output / f"{split}.{language}", "\n".join(lines) + "\n")


def scored(workdir: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the BLEU of each group of texts, "whole" and, if scored, "in parts"."""
    files = {"whole": f"test.last,{WHOLE}.jsonl", "in parts": "test.last.jsonl"}
    found = {name: workdir / "eval" / file for name, file in files.items()}
    if not found["whole"].exists():
        raise UserError(
            f"{workdir}: its test split was not scored whole; run eval.py --split=test "
            f"--config.{WHOLE}"
        )
    return {name: by_pieces(workdir, file) for name, file in found.items() if file.exists()}


def by_pieces(workdir: Path, file: Path) -> list[dict[str, Any]]:
    """Return the BLEU of each group of texts in a file of scores."""
    rows = [json.loads(line) for line in read_lines(file)]
    sources = load(workdir).tokenizers.src.encode([row["source"] for row in rows])
    groups: dict[int, list[Any]] = {}
    for row, ids in zip(rows, sources, strict=True):
        groups.setdefault(bisect.bisect_left(EDGES, len(ids)), []).append(row["counts"])
    return [
        {"pieces": EDGES[group], "sentences": len(counts),
         "bleu": round(corpus_bleu(counts).score, 2)}
        for group, counts in sorted(groups.items()) if group < len(EDGES)
    ]  # fmt: skip


def draw(found: dict[str, dict[str, list[dict[str, Any]]]], path: Path) -> None:
    """Plot a solid line per scheme for whole texts, and a dotted one for parts."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    panel = figure.subplots()
    panel.axvspan(0, TRAINED, color="#eef1f4", zorder=0)
    for number, (name, ways) in enumerate(found.items()):
        for way, rows in ways.items():
            style = ("o-", 1.5, name) if way == "whole" else (":", 1.0, None)
            panel.plot([row["pieces"] for row in rows], [row["bleu"] for row in rows], style[0],
                       markersize=4, linewidth=style[1], label=style[2],
                       color=f"C{number}")  # fmt: skip
    panel.set_xlabel(
        "pieces of the source, up to (grey: the lengths of training; broken: read in parts)"
    )
    panel.set_ylabel("BLEU")
    panel.set_xticks(EDGES)
    panel.set_xlim(0, EDGES[-1] + 4)
    panel.set_ylim(0)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize="small", ncols=2)
    save(figure, path)


def make_picture(arguments: argparse.Namespace) -> None:
    """Write the figures and the plot of all scored runs."""
    schemes = runpy.run_path(str(CONFIG))["SCHEMES"]
    places = {name: arguments.sweep / name for name in schemes}
    found = {name: scored(place) for name, place in places.items() if place.is_dir()}
    write_text(arguments.output.with_suffix(".json"), json.dumps(found, indent=1) + "\n")
    draw(found, arguments.output.with_suffix(".svg"))


def main() -> None:
    """Write the text or the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    text = commands.add_parser("text")
    text.add_argument("--tatoeba", type=Path, required=True)
    text.add_argument("--multi30k", type=Path, required=True)
    text.add_argument("--output", type=Path, required=True)
    text.add_argument("--lines", type=int, default=120_000, help="lines of the training text")
    text.set_defaults(run=make_text)
    picture = commands.add_parser("picture")
    picture.add_argument("sweep", type=Path)
    picture.add_argument("--output", type=Path, required=True, help="without suffix")
    picture.set_defaults(run=make_picture)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
