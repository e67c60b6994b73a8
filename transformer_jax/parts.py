"""Parts of one's own: values of a field that stand in no table of ours.

path/file.py:Name    what a file calls Name
package:Name         an entry point of that name, in the group "transformer_jax", of an installed
                     package

So a config names them. An experiment, and with it config.json, has the SHA-256 of the file behind
that, as in "norms.py:Centred@sha256:...": with another file it is another experiment. A file runs
only once it is admitted, which is up to whoever calls the program: that a config.json names it runs
nothing. An installed package is admitted by being installed.
"""

import ast
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.errors import UserError, explained

GROUP = "transformer_jax"
_FORM = re.compile(r"([^:@]+):([A-Za-z_]\w*)(?:@sha256:([0-9a-f]{64}))?")


class Part(NamedTuple):
    """A part as it is named."""

    home: str  # a file or a package
    name: str
    digest: str | None  # SHA-256 of the file; None: of whatever the file is now

    @property
    def lies_in_file(self) -> bool:
        return self.home.endswith(".py")


class _File:
    """A file as it was when it was admitted."""

    def __init__(self, path: str, text: bytes) -> None:
        self.path, self.text = path, text
        self.digest = hashlib.sha256(text).hexdigest()

    @functools.cached_property
    def contents(self) -> dict[str, Any]:
        """All that the file defines; it runs when this is first asked for."""
        module = types.ModuleType(f"{GROUP}_part_{self.digest[:16]}")
        module.__file__ = self.path
        sys.modules[module.__name__] = module  # dataclasses look themselves up there
        try:
            exec(compile(self.text, self.path, "exec"), module.__dict__)
        except (Exception, SystemExit) as error:
            del sys.modules[module.__name__]
            raise UserError(explained(Path(self.path), error)) from None
        return module.__dict__


_now: dict[Path, _File] = {}  # by place: as last admitted
_ever: dict[str, _File] = {}  # by digest


def read(value: Any) -> Part | None:
    """Return the part that a value of a field names; None if it names none."""
    found = _FORM.fullmatch(value) if isinstance(value, str) else None
    return Part(*found.groups()) if found else None


def words(value: Any) -> Iterator[tuple[str, Part]]:
    """Yield the parts that a value names, of a tuple or a command line's text each one."""
    texts = value.strip("()[]").split(",") if isinstance(value, str) else value
    for text in texts if isinstance(texts, list | tuple) else ():
        word = text.strip(" '\"")
        if (part := read(word)) is not None:
            yield word, part


def admit(file: str | Path) -> None:
    """Let what a file defines be the value of a field. The file is read now, and runs when a part
    of it is needed.

    Raises:
      UserError: if there is no such file, or it is not Python.
    """
    try:
        text = Path(file).read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror}); name a Python file") from None
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{file}:{getattr(error, 'lineno', 1)}: {error}") from None
    found = _File(str(file), text)
    _now[Path(file).resolve()] = _ever.setdefault(found.digest, found)


def admit_named(value: Any) -> None:
    """Admit the files of the parts that a value names, which the caller of the program wrote.

    Raises:
      UserError: if a file is not there, or not the one whose digest is named.
    """
    for word, part in words(value):
        if part.lies_in_file:
            admit(part.home)
            if part.digest not in (None, _now[Path(part.home).resolve()].digest):
                raise _refused(word, part, "--parts")


def pinned(value: str, what: str) -> str:
    """Return the name of a part with the digest of its file, as an experiment has it; `what` says
    of which field it is the value.

    Raises:
      UserError: if it has none yet, and there is no such part or its file was not admitted.
    """
    part = read(value)
    assert part is not None
    if part.digest is not None:  # as config.json has it: nothing needs to be there
        return value
    if not part.lies_in_file:
        return f"{value}@sha256:{_digest_of(_entry_point(part, what))}"
    file = _now.get(Path(part.home).resolve())
    if file is None:
        raise _refused(value, part, what)
    names = {getattr(node, field, None) for node in ast.walk(ast.parse(file.text))
             for field in ("name", "id", "asname")}  # fmt: skip
    if part.name not in names:
        raise UserError(f"{what}={value!r}: {part.home} defines no {part.name}")
    return f"{value}@sha256:{file.digest}"


def resolve(value: str, what: str) -> Any:
    """Return the part itself, and run its file if this is the first that is asked of it.

    Raises:
      UserError: if it is not the one that the experiment has, or was not admitted.
    """
    part = read(value)
    assert part is not None
    if not part.lies_in_file:
        entry = _entry_point(part, what)
        if part.digest not in (None, _digest_of(entry)):
            raise UserError(
                f"{what}={value!r}: the installed {part.home} is not the one that the run was "
                "trained with; install that version, or train in another --workdir"
            )
        return entry.load()
    file = _ever.get(part.digest) if part.digest else _now.get(Path(part.home).resolve())
    if file is None:
        raise _refused(value, part, what)
    if part.name not in file.contents:
        raise UserError(f"{what}={value!r}: {part.home} defines no {part.name}")
    return file.contents[part.name]


def short(value: Any, digits: int = 0) -> Any:
    """Return a value without the digests of parts, or with so many digits of them, to be shown."""
    if isinstance(value, tuple):
        return tuple(short(word, digits) for word in value)
    part = read(value)
    if part is None or part.digest is None:
        return value
    return f"{part.home}:{part.name}" + f"@sha256:{part.digest[:digits]}" * bool(digits)


def same(one: Any, other: Any) -> bool:
    """Say whether two values are the same but for where the files of parts lie."""
    return _known_by(one, lambda part: part.digest) == _known_by(other, lambda part: part.digest)


def edited(one: Any, other: Any) -> bool:
    """Say whether two values are the same but for what the files of parts hold."""
    names = (_known_by(value, lambda part: Path(part.home).name) for value in (one, other))
    return len({*names}) == 1 and not same(one, other)


def _known_by(value: Any, of: Callable[[Part], Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(_known_by(word, of) for word in value)
    part = read(value)
    return value if part is None or part.digest is None else (part.name, of(part))


def homes(values: Sequence[str]) -> list[str]:
    """Return the files of the parts that values name, each once."""
    named = (part.home for _, part in words(values) if part.lies_in_file)
    return list(dict.fromkeys(named))


def files(values: Sequence[str]) -> dict[str, bytes]:
    """Return {name: content} of the admitted files that values name, for a copy of each."""
    named = {part.digest: Path(part.home).stem for _, part in words(values)}
    return {
        f"{stem}-{digest[:12]}.py": _ever[digest].text
        for digest, stem in named.items()
        if digest in _ever
    }


def _refused(value: str, part: Part, what: str) -> UserError:
    what = f"{what}={value!r}"
    alike = [file for place, file in _now.items() if place.name == Path(part.home).name]
    if part.digest is not None and alike:
        return UserError(
            f"{what}: {alike[0].path} is not the file that the run was trained with: "
            f"SHA-256 {part.digest[:12]}... then, {alike[0].digest[:12]}... now; put that one back "
            "(a copy lies in parts/ of the work directory), or train in another --workdir"
        )
    return UserError(
        f"{what}: is code that the work directory alone does not run; if you trust it, "
        f"add --parts={part.home}, or the copy of it in parts/ of the work directory; in Python "
        f"load(..., parts=[{part.home!r}]) or transformer_jax.admit({part.home!r})"
    )


def _entry_point(part: Part, what: str) -> importlib.metadata.EntryPoint:
    entries = {(_plain(entry.dist.name), entry.name): entry
               for entry in importlib.metadata.entry_points(group=GROUP) if entry.dist}  # fmt: skip
    if (_plain(part.home), part.name) not in entries:
        known = ", ".join(":".join(key) for key in sorted(entries)) or "none"
        raise UserError(
            f"{what}={part.home}:{part.name}: no installed package {part.home} has such an entry "
            f"point in the group {GROUP!r}; install it, or choose one of those there are: {known}"
        )
    return entries[_plain(part.home), part.name]


def _plain(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def _digest_of(entry: importlib.metadata.EntryPoint) -> str:
    spec = importlib.util.find_spec(entry.module)
    if spec is None or spec.origin is None:
        raise UserError(f"{entry.value}: there is no such module; install the package again")
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
