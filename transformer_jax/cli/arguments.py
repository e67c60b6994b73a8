"""Command lines: a config file, then overrides of single fields."""

import argparse
import inspect
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from absl import logging as absl_logging
from ml_collections import ConfigDict

from transformer_jax.base.disk import exit_code, user_path
from transformer_jax.base.errors import UserError, explained
from transformer_jax.base.messages import warn_on_stderr, write_any_text
from transformer_jax.config import TAKE_PARTS
from transformer_jax.config.convert import door, override, value_at
from transformer_jax.config.parts import admit, admit_named
from transformer_jax.config.registry import did_you_mean, pick
from transformer_jax.runs.workdir import WorkDir, config_file

# Help of options that several commands have.
WORKDIR = "the work directory of a run, as train.py writes it"
WORKDIRS = (
    "the work directory of a run; given several times, the models form an ensemble, which needs "
    "the same tokenizer and objective and uses the settings of the first"
)
CHECKPOINTS = (
    "best, last, a step or average:N; several, as in best,last,1200, form an ensemble too; with "
    "several work directories, of each; default: the config's evaluation.checkpoint"
)

_OVERRIDES = """\
--config.FIELD=VALUE sets a field of the config and may be repeated, as in
--config.decoding.beam_size=8. Commas separate several values; a value that has
some itself is quoted, as in --config.tokenizer.symbols='",",;', or in brackets, as
in a pattern like x{1,3}. To list the fields and what they mean:
transformer-jax config [GROUP or GROUP.FIELD]"""

Main = Callable[[Sequence[str]], int]  # runs a command's arguments, and returns its exit code

_command: ContextVar[str | None] = ContextVar("_command", default=None)  # "transformer-jax score"


# Arguments that are paths, or begin with one as in PATH:VARIANT, though not of the type Path.
_PLACES = ("workdir", "config", "output", "run", "libtpu")


def _expanded(path: Any) -> Any:
    return type(path)(user_path(path))


class _Admit(argparse.Action):
    """Admits the named file: see transformer_jax/config/parts.py."""

    def __call__(self, parser: Any, namespace: Any, value: Any, option: Any = None) -> None:
        admit(value)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are UserErrors and that collects --config.FIELD=VALUE."""

    def __init__(self, description: str) -> None:
        script = Path(sys.argv[0]).name
        super().__init__(
            prog=_command.get() or (f"python {script}" if script.endswith(".py") else script),
            description=description,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.add_argument(
            "--parts", action=_Admit, metavar="FILE",
            help="a file of your own parts that the config of a work directory names; its code "
            "runs only with this option; may be repeated",
        )  # fmt: skip

    def error(self, message: str):
        raise UserError(f"{message}; see --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Read arguments as argparse does; in paths, ~ is the home directory."""
        known, rest = super().parse_known_args(args, namespace)
        for action in self._actions:
            value = getattr(known, action.dest, None)
            if value is not None and (action.type is Path or action.dest in _PLACES):
                several = isinstance(value, list)  # perhaps none
                paths = [_expanded(x) for x in value] if several else _expanded(value)
                setattr(known, action.dest, paths)
        return known, rest

    def read(self, argv: Sequence[str]) -> tuple[argparse.Namespace, list[tuple[str, str]]]:
        """Return the arguments and the overrides (path, text), in order."""
        usage = self.format_usage().removeprefix("usage: ").rstrip()
        indent = " " * len(f"usage: {self.prog} ")
        self.usage = f"{usage}\n{indent}[--config.FIELD=VALUE ...]"
        self.epilog = _OVERRIDES
        known, rest = self.parse_known_args(list(argv))
        overrides = []
        while rest:
            argument = rest.pop(0)
            name, equals, value = argument.partition("=")
            if name.startswith("--noconfig.") and not equals:
                name, value = f"--{name[4:]}", "False"
            elif not name.startswith("--config."):
                options = [o for a in self._actions for o in a.option_strings if o[:2] == "--"]
                raise UserError(f"{argument}: unknown argument{did_you_mean(name, options)}")
            elif not equals:
                value = rest.pop(0) if rest and not rest[0].startswith("--") else "True"
            overrides.append((name.removeprefix("--config."), value))
        return known, overrides


def load_config(spec: str, overrides: Sequence[tuple[str, str]] = ()) -> ConfigDict:
    """Run PATH or PATH:ARGUMENT, a file with get_config or the name of a built-in one, and apply
    the overrides. Custom parts that they name are admitted: the caller wrote them. A work directory
    stands for the config of its run, whose parts are not admitted.

    Raises:
      UserError: if there is no such file, or it or an override is wrong.
    """
    of_run = user_path(spec).is_dir()
    config = door(WorkDir(spec).experiment()) if of_run else _run(spec)
    for field, text in overrides:
        if field in TAKE_PARTS:
            admit_named(text)
        override(config, field, text)
    for field in () if of_run else TAKE_PARTS:
        admit_named(value_at(config, field))
    return config


def _run(spec: str) -> ConfigDict:
    path, argument = _config_file(spec)
    try:
        get_config = runpy.run_path(str(path)).get("get_config")
        if get_config is None:
            raise UserError("defines no get_config; see configs/base.py")
        if argument is not None and not inspect.signature(get_config).parameters:
            raise UserError(f"has no variants; leave out :{argument}")
        config = get_config() if argument is None else get_config(argument)
        if not isinstance(config, ConfigDict):
            raise UserError("get_config must return a ConfigDict; see configs/base.py")
    except ValueError as error:
        raise UserError(f"--config={spec}: {error}") from None
    except (Exception, SystemExit) as error:  # a typo in the file
        raise UserError(explained(path, error)) from None
    return config


def load_variants(spec: str) -> dict[str, Any]:
    """Return VARIANTS of a config file: the name of each variant that it declares, and the
    published figures for it. {} if it has none.

    Raises:
      UserError: if there is no such file, or it is wrong.
    """
    path, _ = _config_file(spec)
    try:
        return dict(runpy.run_path(str(path)).get("VARIANTS", {}))
    except (Exception, SystemExit) as error:
        raise UserError(explained(path, error)) from None


def _config_file(spec: str) -> tuple[Path, str | None]:
    name, argument = config_file(spec)
    path, ours = user_path(name), {p.stem: p for p in sorted(_configs().glob("*.py"))}
    if not path.is_file() and path.parent in (Path(), Path("configs")) and path.stem in ours:
        path = ours[path.stem]
    if not path.is_file():
        near = [f"configs/{p.name}" for p in ours.values()]
        known = f"; there are {', '.join(near)}" if near else ""
        raise UserError(f"--config={spec}: no file {path}{did_you_mean(name, near)}{known}")
    return path, argument


def _configs() -> Path:
    """Return the folder of built-in config files: in the package if installed, else beside it."""
    package = Path(__file__).parents[1]
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def run_command(program: str, commands: Mapping[str, tuple[str, Main]], argv: Sequence[str]) -> int:
    """Run the command that argv begins with, and return its exit code.

    `commands` has a description of each one, and its function.
    """
    if not argv or argv[0] in ("-h", "--help"):
        print(f"usage: {program} COMMAND [--help] ...\n")
        for name, (what, _) in commands.items():
            print(f"  {name:<12} {what}")
        return 0 if argv else 2
    _, run = pick(commands, argv[0], program)
    outer = _command.set(f"{program} {argv[0]}")
    try:
        return run(argv[1:])
    finally:
        _command.reset(outer)


def program(main: Main) -> Callable[[], None]:
    """Make an entry point: a UserError or OSError becomes one line and its exit code."""

    def entry() -> None:
        absl_logging.set_verbosity(absl_logging.ERROR)  # users need no remarks of libraries
        _open_closed_streams()
        write_any_text()
        warn_on_stderr()
        try:
            code = main(sys.argv[1:])
            sys.stdout.flush()
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            code = error.exit_code
        except BrokenPipeError:
            code = 0  # the reader, for example `head`, has seen enough
        except OSError as error:
            what = error.filename or "input or output failed"
            print(f"error: {what}: {error.strerror or error}", file=sys.stderr)
            code = exit_code(error)
        except KeyboardInterrupt:
            code = 130
        _finish_output()
        sys.exit(code)

    return entry


def _finish_output() -> None:
    """Drop what standard output does not take; on exit, Python would retry and return code 120."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_closed_streams() -> None:
    """Open closed standard streams (`<&-`) so that input and output fail.

    Otherwise print would do nothing, and the next file opened would take their place.
    """
    for name, flags in (("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, closefd=False))
