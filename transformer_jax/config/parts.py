"""User-defined parts: values of a field that no built-in table contains.

path/file.py:Name    the object that a file calls Name
package:Name         an installed package's entry point of that name, in the group "transformer_jax"

This is how a config names them. An experiment, and so its config.json, adds the SHA-256 of the
file, as in "norms.py:Centred@sha256:...": a different file is a different experiment. A file is
executed only once the caller of the program has admitted it; being named in a config.json executes
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

from transformer_jax.base.command_text import listed, unwrapped
from transformer_jax.base.disk import user_path
from transformer_jax.base.errors import UserError, explained

GROUP = "transformer_jax"
# A file's path may contain colons and more; a package's name may not.
_FORM = re.compile(r"(.+\.py|[^:@/,]+):([A-Za-z_]\w*)(?:@sha256:([0-9a-f]{64}))?")


class Part(NamedTuple):
    """The name of a part, parsed."""

    home: str  # a file or a package
    name: str
    digest: str | None  # SHA-256 of the file; None: the file as it is now

    @property
    def lies_in_file(self) -> bool:
        return self.home.endswith(".py")


class _File:
    """An admitted file, with its contents at that time."""

    def __init__(self, path: str, text: bytes) -> None:
        self.path, self.text, self.digest = path, text, hashlib.sha256(text).hexdigest()
        _now[user_path(path).resolve()] = _ever.setdefault(self.digest, self)

    @functools.cached_property
    def contents(self) -> dict[str, Any]:
        """Everything that the file defines; first access executes the file."""
        module = types.ModuleType(f"{GROUP}_part_{self.digest[:16]}")
        module.__file__ = self.path
        sys.modules[module.__name__] = module  # dataclasses look themselves up there
        try:
            exec(compile(self.text, self.path, "exec"), module.__dict__)
        except (Exception, SystemExit) as error:
            del sys.modules[module.__name__]
            raise UserError(explained(Path(self.path), error)) from None
        return module.__dict__


_now: dict[Path, _File] = {}  # by path, as last admitted
_ever: dict[str, _File] = {}  # by digest


def read(value: Any) -> Part | None:
    """Return the part that the value of a field names, or None if it names none."""
    matched = _FORM.fullmatch(value) if isinstance(value, str) else None
    return Part(*matched.groups()) if matched else None


def words(value: Any) -> Iterator[tuple[str, Part]]:
    """Yield the parts that a value names, each of them for a tuple or command-line text."""
    texts = _texts(value) if isinstance(value, str) else value
    for text in texts if isinstance(texts, list | tuple) else ():
        word = text.strip(" '\"")
        if (part := read(word)) is not None:
            yield word, part


def _texts(value: str) -> list[str]:
    """Return the values in command-line text; the path of a file may contain commas."""
    whole = read(value)
    alone = whole is not None and user_path(whole.home).is_file()
    return [value] if alone else listed(unwrapped(value))


def admit(file: str | Path) -> None:
    """Allow the definitions of a file as values of fields. The file is read now, and executed when
    one of its parts is needed.

    Raises:
      UserError: if the file does not exist or is not Python.
    """
    try:
        text = user_path(file).read_bytes()
    except OSError as error:
        raise UserError(
            f"{file}: cannot be read ({error.strerror}); give the path of a Python file"
        ) from None
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{file}:{getattr(error, 'lineno', 1)}: {error}") from None
    _File(str(file), text)


def admit_named(value: Any) -> None:
    """Admit the files of the parts named in a value that the caller of the program wrote.

    Raises:
      UserError: if a file does not exist or does not have the digest named.
    """
    for word, part in words(value):
        if part.lies_in_file:
            admit(part.home)
            if part.digest not in (None, _now[user_path(part.home).resolve()].digest):
                raise _refused(word, part, "--parts")


def admitted() -> list[tuple[str, bytes]]:
    """Return path and text of all admitted files, for `admit_text` elsewhere."""
    return [(file.path, file.text) for file in _ever.values()]


def admit_text(path: str, text: bytes) -> None:
    """Admit a file of another process, and execute it, so that what it defines can be received."""
    _ = _ever[_File(path, text).digest].contents


def pinned(value: str, what: str) -> str:
    """Return the name of a part with the digest of its file, as an experiment stores it; `what`
    names the field.

    Raises:
      UserError: if it has no digest yet, and the part does not exist or its file was not admitted.
    """
    part = read(value)
    assert part is not None
    if part.digest is not None:  # from config.json: the file need not exist
        return value
    if not part.lies_in_file:
        return f"{value}@sha256:{_digest_of(_entry_point(part, what))}"
    file = _now.get(user_path(part.home).resolve())
    if file is None:
        raise _refused(value, part, what)
    names = {getattr(node, field, None) for node in ast.walk(ast.parse(file.text))
             for field in ("name", "id", "asname")}  # fmt: skip
    if part.name not in names:
        raise _undefined(value, part, what, file)
    return f"{value}@sha256:{file.digest}"


def resolve(value: str, what: str) -> Any:
    """Return the part itself, executing its file on first use.

    Raises:
      UserError: if it is not the one recorded in the experiment, or was not admitted.
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
    file = _file_of(part)
    if file is None:
        raise _refused(value, part, what)
    if part.name not in file.contents:
        raise _undefined(value, part, what, file)
    return file.contents[part.name]


def record_of(value: str) -> Any:
    """Return what a part says about itself by an attribute `record`, or None if it says nothing,
    its file was not admitted or its package is another one: that is reported where the part is
    needed. A file without the word is not executed.
    """
    part = read(value)
    if part is None:
        return None
    if part.lies_in_file:
        file = _file_of(part)
        if file is None or b"record" not in file.text:
            return None
        return getattr(file.contents.get(part.name), "record", None)
    try:
        return getattr(resolve(value, part.home), "record", None)
    except UserError:
        return None


def _file_of(part: Part) -> _File | None:
    """Return the admitted file of a part, if there is one."""
    return _ever.get(part.digest) if part.digest else _now.get(user_path(part.home).resolve())


def short(value: Any, digits: int = 0) -> Any:
    """Return a value for display, without the digests of parts or with this many digits of them."""
    if isinstance(value, tuple):
        return tuple(short(word, digits) for word in value)
    part = read(value)
    if part is None or part.digest is None:
        return value
    return f"{part.home}:{part.name}" + f"@sha256:{part.digest[:digits]}" * bool(digits)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are the same except for the paths of the files of parts."""
    return _known_by(one, lambda part: part.digest) == _known_by(other, lambda part: part.digest)


def edited(one: Any, other: Any) -> bool:
    """Return whether two values differ only in the contents of the files of parts."""
    names = (_known_by(value, lambda part: Path(part.home).name) for value in (one, other))
    return len({*names}) == 1 and not same(one, other)


def _known_by(value: Any, of: Callable[[Part], Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(_known_by(word, of) for word in value)
    part = read(value)
    return value if part is None or part.digest is None else (part.name, of(part))


def homes(values: Sequence[str]) -> list[str]:
    """Return the files of the parts that values name, without duplicates."""
    return list(dict.fromkeys(part.home for _, part in words(values) if part.lies_in_file))


def files(values: Sequence[str]) -> dict[str, bytes]:
    """Return {name: content} of the admitted files that values name, for copying them."""
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
            f"SHA-256 {part.digest[:12]}... then, {alike[0].digest[:12]}... now; restore that one "
            "(a copy is in parts/ of the work directory), or train in another --workdir"
        )
    return UserError(
        f"{what}: is code, and a work directory alone does not cause code to run; if you trust it, "
        f"add --parts={part.home} to the command, or its copy in parts/ of the work directory; in "
        f"Python, first call transformer_jax.admit({part.home!r})"
    )


def _undefined(value: str, part: Part, what: str, file: _File) -> UserError:
    """Return the error for a part that a file does not define; names those that it does."""
    tops = ast.parse(file.text).body
    names = [getattr(node, "name", None) for node in tops]
    names += [getattr(x, "id", None) for node in tops for x in getattr(node, "targets", [])]
    known = ", ".join(name for name in names if name and not name.startswith("_"))
    return UserError(
        f"{what}={value!r}: {part.home} defines no {part.name}; "
        + (f"name one of {known}, or add it" if known else "add it")
    )


def _entry_point(part: Part, what: str) -> importlib.metadata.EntryPoint:
    entries = {(_plain(entry.dist.name), entry.name): entry
               for entry in importlib.metadata.entry_points(group=GROUP) if entry.dist}  # fmt: skip
    if (_plain(part.home), part.name) not in entries:
        known = ", ".join(":".join(key) for key in sorted(entries)) or "none"
        raise UserError(
            f"{what}={part.home}:{part.name}: no installed package {part.home} has such an entry "
            f"point in the group {GROUP!r}; install it, or choose an installed one: {known}"
        )
    return entries[_plain(part.home), part.name]


def _plain(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def _digest_of(entry: importlib.metadata.EntryPoint) -> str:
    spec = importlib.util.find_spec(entry.module)
    if spec is None or spec.origin is None:
        raise UserError(f"{entry.value}: module not found; install the package again")
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
