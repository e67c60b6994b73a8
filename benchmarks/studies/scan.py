"""SCAN: its files as columns, cuts of its training commands for validation, and controls.

    python benchmarks/studies/scan.py SCAN --output=data/scan

reads what SCAN has of these: tasks_train_SPLIT.txt, lines such as "IN: jump twice OUT: I_JUMP
I_JUMP" (https://github.com/brendenlake/SCAN), or SPLIT.train.tsv, plain or .gz, with a TAB between
command and actions; and the official tests, where they are there under names with "test" in place
of "train". It writes SPLIT.train.tsv and SPLIT.test.tsv, and two cuts that ask within the training
commands what the official tests ask beyond them, so that no choice needs to be made by looking at
these:

length_15     trains on commands of `length` with at most 15 actions, and validates on the others,
              of up to 22. "walk around left twice" takes 16, and so is never seen alone, as "walk
              around left thrice", of 24, is not in the official training part.
addprim_look  trains on commands of `addprim_jump` without "look" and, as a tenth of all, on "look"
              by itself; validates on the others with "look".

Prints for each file its lines and, for the validation parts, how many of their action sequences
stand in training: what a program that looks up answers could know.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

from transformer_jax.base.errors import UserError
from transformer_jax.data.sources.files import read_lines

SPLITS = ("simple", "length", "addprim_jump", "addprim_turn_left", "template_around_right")
_ACTIONS = frozenset(f"I_{x}" for x in ("WALK", "LOOK", "RUN", "JUMP", "TURN_LEFT", "TURN_RIGHT"))

Pair = tuple[str, str]


def main() -> None:
    """Write the files, and print what is in them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    directory = arguments.directory
    found = {split: path for split in SPLITS if (path := _path(directory, split, "train"))}
    if not found:
        parser.error(f"{directory} has no tasks_train_SPLIT.txt and no SPLIT.train.tsv")
    for split, path in found.items():
        pairs = read(path)
        _write(arguments.output, f"{split}.train", pairs)
        if test := _path(directory, split, "test"):
            _write(arguments.output, f"{split}.test", read(test))
        if split in CUTS:
            name, cut = CUTS[split]
            train, validation = cut(pairs)
            random.Random(arguments.seed).shuffle(train)
            _write(arguments.output, f"{name}.train", train)
            _write(arguments.output, f"{name}.validation", validation)
            known = {actions for _, actions in train}
            seen = sum(actions in known for _, actions in validation)
            print(f"{name}: the actions of {seen} of {len(validation)} commands are in training")


def _path(directory: Path, split: str, part: str) -> Path | None:
    names = (f"tasks_{part}_{split}.txt", f"{split}.{part}.tsv", f"{split}.{part}.tsv.gz")
    return next((directory / name for name in names if (directory / name).is_file()), None)


def read(path: Path) -> list[Pair]:
    """Return the commands of a file, each with its actions.

    Raises:
      UserError: if a line is not one of both; names it.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), 1):
        if line.startswith("IN: "):
            command, mark, actions = line.removeprefix("IN: ").partition(" OUT: ")
        else:
            command, mark, actions = line.partition("\t")
        strange = [word for word in actions.split() if word not in _ACTIONS]
        if not (mark and command.strip() and actions.strip()) or strange:
            what = f"{strange[0]!r} is no action" if strange else "it lacks one of both"
            raise UserError(
                f"{path}:{number}: must be a command, a TAB and its actions, or 'IN: COMMAND OUT: "
                f"ACTIONS', but {what}; correct or remove the line"
            )
        pairs.append((" ".join(command.split()), " ".join(actions.split())))
    return pairs


def by_length(pairs: Sequence[Pair], most: int = 15) -> tuple[list[Pair], list[Pair]]:
    """Return the commands with at most so many actions, and the others."""
    short = [pair for pair in pairs if len(pair[1].split()) <= most]
    return short, [pair for pair in pairs if len(pair[1].split()) > most]


def by_word(pairs: Sequence[Pair], word: str = "look") -> tuple[list[Pair], list[Pair]]:
    """Return commands without the word and, as a tenth of all, the word itself; and the others."""
    alone = next(pair for pair in pairs if pair[0] == word)
    without = [pair for pair in pairs if word not in pair[0].split()]
    inside = dict.fromkeys(pair for pair in pairs if word in pair[0].split() and pair != alone)
    return without + [alone] * (len(without) // 9), list(inside)


CUTS = {"length": ("length_15", by_length), "addprim_jump": ("addprim_look", by_word)}


def _write(directory: Path, name: str, pairs: Sequence[Pair]) -> None:
    path = directory / f"{name}.tsv"
    path.write_text("".join(f"{command}\t{actions}\n" for command, actions in pairs))
    print(f"{path}: {len(pairs)} lines")


if __name__ == "__main__":
    main()
