"""transformer-jax demo: train a small translator, score it, and translate with it."""

import subprocess
import sys
from collections.abc import Sequence

from transformer_jax.cli.arguments import Parser

CONFIG = "spelled_numbers"
NUMBERS = (
    "zwölf", "siebenundachtzig", "dreihunderteinundzwanzig", "neunzehntausendacht",
    "vier Millionen fünfhunderttausendsechs",
)  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Run the whole of it, and return the exit code."""
    parser = Parser(
        "Train a small Transformer to translate numbers, spelled out in German, into English;\n"
        "score it on numbers that it has not seen, and translate five. It takes minutes on two\n"
        "cores."
    )
    parser.add_argument("--workdir", default="runs/demo", help="default: runs/demo")
    arguments, overrides = parser.read(argv)
    changed = [f"--config.{field}={text}" for field, text in overrides]
    place = f"--workdir={arguments.workdir}"
    # Processes of their own: training takes all cores as one device, and scoring as several.
    for command, options in (("train", [f"--config={CONFIG}", *changed]), ("evaluate", [])):
        program = [sys.executable, "-m", f"transformer_jax.cli.{command}", *options, place]
        if code := subprocess.run(program).returncode:
            return code if code > 0 else 128 - code

    from transformer_jax.api import load

    print()
    for number, text in zip(NUMBERS, load(arguments.workdir).translate(NUMBERS), strict=True):
        print(f"{number}\n    -> {text}")
    print("\nTranslate one of your own:")
    print(f"    echo 'achtundvierzigtausendzwölf' | transformer-jax translate {place}")
    return 0
