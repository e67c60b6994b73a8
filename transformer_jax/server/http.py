"""HTTP itself, whatever the protocol: keys, bodies, limits, refusals, streams, disconnects."""

import asyncio
import hmac
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import suppress
from email.message import Message
from email.parser import HeaderParser
from email.utils import collapse_rfc2231_value
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from transformer_jax.server.settings import Settings

T = TypeVar("T")

_TYPES = {
    400: "invalid_request", 401: "unauthorized", 403: "forbidden", 404: "not_found",
    405: "method_not_allowed", 408: "request_timeout", 413: "too_large",
    415: "unsupported_media_type", 429: "overloaded", 500: "internal_error",
    503: "unavailable", 504: "deadline_exceeded",
}  # fmt: skip
# Forms of HTML: URL-encoded (RFC 1866), or in parts (RFC 7578).
_ENCODED = "application/x-www-form-urlencoded"
_IN_PARTS = "multipart/form-data"
_FIELDS = 100  # of a form, at most


class Refusal(Exception):
    """A refused request: its status, a message for the client, when to retry, the field at fault,
    and what is wrong with it, for protocols that say so.
    """

    def __init__(
        self, status: int, message: str, retry_after: float | None = None,
        param: str | None = None, code: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = {}
        if retry_after is not None:
            self.headers["retry-after"] = str(max(1, round(retry_after)))
        if status == 401:
            self.headers["www-authenticate"] = "Bearer"

    @property
    def type(self) -> str:
        """The kind of refusal, for client programs."""
        return _TYPES.get(self.status, "error")


class Gone(Exception):
    """The client has disconnected: there is nobody to answer."""


class Upload(NamedTuple):
    """A part of a form: its field, the name of its file, if it is one, and its content."""

    field: str
    name: str | None
    content: bytes


Render = Callable[[Refusal], dict[str, Any]]  # an error in the form of a protocol


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a value as JSON."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def bearer(request: Request) -> str:
    """Return the key in the headers of a request."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    # Headers come as Latin-1, whatever the client meant.
    return (
        key.strip().encode("latin-1").decode(errors="replace") if scheme.lower() == "bearer" else ""
    )


def check_key(settings: Settings, given: str) -> None:
    """Check the key of a client, in constant time.

    Raises:
      Refusal: if it is wrong.
    """
    if settings.key is not None and not hmac.compare_digest(
        given.encode(errors="replace"), settings.key.encode(errors="replace")
    ):
        raise Refusal(401, "this server requires a key: Authorization: Bearer KEY")


def check_texts(texts: list[str], settings: Settings, most: int | None = None) -> None:
    """Check the number and the lengths of texts.

    Raises:
      Refusal: if there are too many, or one is too long.
    """
    most = settings.max_texts if most is None else most
    if len(texts) > most:
        raise Refusal(413, f"{len(texts)} texts, at most {most} allowed; send fewer at a time")
    longest = max(map(len, texts), default=0)
    if longest > settings.max_characters:
        raise Refusal(
            413,
            f"a text of {longest} characters, at most {settings.max_characters} allowed; split it",
        )


def seconds_for(asked: float | None, settings: Settings) -> float:
    """Return how many seconds a request may take."""
    return settings.timeout if asked is None else min(asked, settings.timeout)


async def _body_of(request: Request, settings: Settings) -> bytes:
    """Return the body of a request, its size checked as it arrives.

    Raises:
      Refusal: if it is too large, or too slow.
    """
    most = settings.max_body
    too_large = Refusal(413, f"a body of more than {most} bytes; send less at a time")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and len(declared) < 20 and int(declared) > most:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(settings.patience):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise too_large
    except TimeoutError:
        raise Refusal(408, f"the body took longer than {settings.patience:g} seconds") from None
    return bytes(body)


async def read(request: Request, kind: type[T], settings: Settings) -> T:
    """Parse the body of a request, JSON or a form, into a structure.

    Raises:
      Refusal: if it is malformed.
    """
    value, _ = await read_with_files(request, kind, settings, allowed=False)
    return value


async def read_with_files(
    request: Request, kind: type[T], settings: Settings, allowed: bool = True
) -> tuple[T, list[Upload]]:
    """Parse the body of a request as `read` does, and return the files of a form in parts, too, if
    they are `allowed`.

    Raises:
      Refusal: if it is malformed.
    """
    body = await _body_of(request, settings)
    content_type = request.headers.get("content-type", "")
    form = _media_type(content_type)
    curls = form == _ENCODED and body.lstrip().startswith(b"{")  # it calls everything a form
    try:
        if form in (_ENCODED, _IN_PARTS) and not curls:
            fields, files = _fields_of(body, content_type)
            for file in () if allowed else files:
                raise ValueError(f"{file.field}: is a file; send its text as a field")
            return msgspec.convert(fields, kind, strict=False), files
        return msgspec.json.decode(body, type=kind), []
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeError, ValueError) as error:
        raise Refusal(400, _reason(error), None, *_fault(error)) from None
    except RecursionError:
        raise Refusal(400, "the JSON is nested too deeply") from None


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "the body is not valid UTF-8"
    text = str(error).replace("`", "")
    return (text if text.startswith("JSON") else text[:1].lower() + text[1:])[:300]


# What msgspec says of a field, and how OpenAI's protocol names that.
_FAULTS = (
    (re.compile(r"missing required field `(\w+)`"), "missing_required_parameter"),
    (re.compile(r"contains unknown field `(\w+)`"), "unknown_parameter"),
    (re.compile(r", got .* - at `\$\.(\w+)"), "invalid_type"),
    (re.compile(r" - at `\$\.(\w+)"), "invalid_value"),
)


def _fault(error: Exception) -> tuple[str | None, str | None]:
    """Return the field that a validation error is about, and what is wrong with it, if known."""
    if isinstance(error, msgspec.ValidationError):
        for pattern, code in _FAULTS:
            if matched := pattern.search(str(error)):
                return matched[1], code
    return None, None


def _media_type(content_type: str) -> str:
    """Return the type in a header, without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def _fields_of(body: bytes, content_type: str) -> tuple[dict[str, Any], list[Upload]]:
    """Return the fields of a form, a text or a list of texts for a field that is repeated, and its
    files.

    Raises:
      ValueError: if it is malformed; UnicodeError if it is not valid UTF-8.
    """
    files: list[Upload] = []
    if _media_type(content_type) == _IN_PARTS:
        parts = list(_parts(body, content_type))
        files = [part for part in parts if part.name is not None]
        pairs = [(part.field, part.content.decode()) for part in parts if part.name is None]
    else:
        text = body.decode()
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_FIELDS)
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: texts[0] if len(texts) == 1 else texts for name, texts in values.items()}, files


def _parts(body: bytes, content_type: str) -> Iterator[Upload]:
    """Yield the parts of a form; those without a name of their own are texts."""
    header = Message()
    header["content-type"] = content_type
    boundary = header.get_boundary()
    if not boundary:
        raise ValueError(f"{_IN_PARTS}: the content type names no boundary")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode(errors="replace"))
    if len(parts) < 2 or not parts[-1].startswith(b"--"):
        raise ValueError(f"{_IN_PARTS}: the body does not end with its boundary")
    if len(parts) - 2 > _FIELDS:
        raise ValueError(f"{_IN_PARTS}: {len(parts) - 2} parts, at most {_FIELDS} allowed")
    for part in parts[1:-1]:
        head, gap, value = part.partition(b"\r\n\r\n")
        headers = HeaderParser().parsestr(head.decode().strip())
        field = headers.get_param("name", header="content-disposition")
        if not gap or not field:
            raise ValueError(f"{_IN_PARTS}: a part has no name")
        yield Upload(collapse_rfc2231_value(field), headers.get_filename(), value)


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine; cancel it if the client disconnects.

    Raises:
      Gone: if the client disconnected.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Gone
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        with suppress(BaseException):
            await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    """Wait until the client disconnects; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def event(value: Any) -> bytes:
    """Return a value as a server-sent event."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def line(value: Any) -> bytes:
    """Return a value as a JSON line."""
    return msgspec.json.encode(value) + b"\n"


async def streamed(
    request: Request, parts: AsyncGenerator[bytes], media_type: str, seconds: float
) -> Response:
    """Return a response that sends parts as they come, for at most `seconds`.

    It waits for the first part, so that earlier errors have their own status.
    """
    try:
        first = await unless_gone(request, anext(parts, b""))
    except BaseException:
        await parts.aclose()
        raise
    return _Stream(first, parts, media_type, seconds)


class _Stream(Response):
    """A streaming response, closed as soon as the client disconnects or reads too slowly."""

    def __init__(
        self, first: bytes, parts: AsyncGenerator[bytes], media_type: str, seconds: float
    ) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(None, 200, headers, media_type)
        del self.headers["content-length"]
        self._first, self._parts, self._seconds = first, parts, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            with suppress(Gone, TimeoutError, OSError):
                async with asyncio.timeout(self._seconds):
                    await unless_gone(request, self._send(send))
        finally:
            await self._parts.aclose()

    async def _send(self, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        async for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
