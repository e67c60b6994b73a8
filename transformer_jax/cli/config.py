"""transformer-jax config [GROUP or GROUP.FIELD ...]: the manual, read from its source.

The comment right above a field and on its own lines explains it; without one, the last comment
above that names it.
"""

import ast
import dataclasses
import functools
import inspect
import io
import re
import textwrap
import tokenize
import typing
from collections.abc import Iterator, Sequence
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import Parser
from transformer_jax.config import TAKE_PARTS, Experiment, manual
from transformer_jax.config.convert import OWN_PART, describe, kind_of
from transformer_jax.config.registry import did_you_mean

_MENTIONED = 6  # most fields that an error names


def main(argv: Sequence[str]) -> int:
    """Print what fields mean, and return the exit code."""
    parser = Parser(
        "Explain the fields of a config: type, default and meaning. Set them in a config file, or\n"
        "with --config.FIELD=VALUE."
    )
    parser.add_argument(
        "field", nargs="*", help="as in decoding.alpha, or a group, as in decoding; default: all"
    )
    names = [name.removeprefix("config.") for name in parser.parse_args(list(argv)).field]
    groups = {name: kind for name, kind, _ in _fields(Experiment) if dataclasses.is_dataclass(kind)}
    for name in names:
        if name not in groups and (near := did_you_mean(name, list(groups))) and "." not in name:
            raise UserError(f"config.{name}: unknown field{near}")
        if name not in groups:
            _check_known(name)
    for name in names or [name for name, _, _ in _fields(Experiment)]:
        if name in groups:
            print(_group(name, groups[name]))
        else:
            print(_entry(name))
    return 0


def _check_known(name: str) -> None:
    """Check that there is a field of that name.

    Raises:
      UserError: if not; names fields that are spelled alike, and those that mention a word alone.
    """
    try:
        kind_of(name)
    except UserError as error:
        texts, last = dict(_texts()), name.rpartition(".")[2]
        same = any(path.rpartition(".")[2] == last for path in texts)
        near = did_you_mean(name, list(texts))
        if same or ("." in name if near else any(last in path for path in texts)):
            raise  # the error names what is meant
        word = re.escape(last.lower().rstrip("s"))
        paths = [path for path, text in texts.items() if re.search(rf"\b{word}", text.lower())]
        if not paths:
            raise
        places = ", ".join(paths[:_MENTIONED]) + ", ..." * (len(paths) > _MENTIONED)
        raise UserError(f"{error}; the word occurs at {places}") from None


def _texts() -> Iterator[tuple[str, str]]:
    """Yield each field with what the manual says about it."""
    for name, kind, _ in _fields(Experiment):
        if dataclasses.is_dataclass(kind):
            for field, _, _ in _fields(kind):
                yield f"{name}.{field}", _entry(f"{name}.{field}")
        else:
            yield name, _entry(name)


def _fields(kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the type and the default of each field."""
    hints, default = typing.get_type_hints(kind), kind()
    for item in dataclasses.fields(kind):
        yield item.name, hints[item.name], getattr(default, item.name)


def _group(name: str, kind: Any) -> str:
    about = " ".join((inspect.getdoc(kind) or "").split())
    entries = [_entry(f"{name}.{field}") for field, _, _ in _fields(kind)]
    return "\n".join([f"{name}: {about}", *(textwrap.indent(text, "  ") for text in entries), ""])


def _entry(path: str) -> str:
    """Return the lines that explain one field: `path` as in "model.d_model"."""
    value: Any = Experiment()
    for name in path.split("."):
        owner, value = value, getattr(value, name)
    own = OWN_PART * (path in TAKE_PARTS)
    head = f"{path} = {value!r}  ({describe(kind_of(path))}{own})"
    comment = comments(type(owner))[name]
    return "\n".join([head, *textwrap.wrap(comment, 92, initial_indent="    ",
                                           subsequent_indent="    ")])  # fmt: skip


def comments(kind: type) -> dict[str, str]:
    """Return {field: its comment} of a class of the manual; "" where there is none."""
    bases = [base for base in reversed(kind.mro()) if dataclasses.is_dataclass(base)]
    return {name: text for base in bases for name, text in _comments(base.__name__).items()}


@functools.cache
def _comments(kind: str) -> dict[str, str]:
    source = inspect.getsource(manual)
    (tree,) = (node for node in ast.parse(source).body
               if isinstance(node, ast.ClassDef) and node.name == kind)  # fmt: skip
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    texts = {token.start[0]: token.string.lstrip("# ") for token in tokens
             if token.type == tokenize.COMMENT and "fmt: skip" not in token.string}  # fmt: skip
    described: dict[str, str] = {}
    above, last = "", tree.lineno
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, end = node.target.id, node.end_lineno or node.lineno
            over = " ".join(texts[i] for i in range(last + 1, node.lineno) if i in texts)
            own = " ".join(texts[i] for i in range(node.lineno, end + 1) if i in texts)
            above, last = over or above, end
            shared = above if re.search(rf"\b{name}\b", above) else ""
            described[name] = f"{over} {own}".strip() or shared
    return described
