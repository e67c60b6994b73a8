"""What every request passes: key, body, limits, and errors in the form of its protocol."""

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from transformer_jax.base.errors import UserError
from transformer_jax.server.asking import Gone
from transformer_jax.server.forms import ENCODED, IN_PARTS, fields_of, media_type
from transformer_jax.server.refusals import Refusal
from transformer_jax.server.service import Service
from transformer_jax.server.settings import Settings

log = logging.getLogger("transformer_jax")

T = TypeVar("T")
Render = Callable[[Refusal], dict[str, Any]]  # an error in the form of a protocol


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a value as JSON."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def guarded(
    handler: Callable[[Service, Request], Awaitable[Response]], name: str, service: Service,
    render: Render, open_to_all: bool = False,
) -> Callable[[Request], Awaitable[Response]]:  # fmt: skip
    """Return a handler that requires the key, and always answers in the protocol's form."""

    async def answer(request: Request) -> Response:
        began = time.monotonic()
        try:
            if not open_to_all:
                check_key(service.settings, bearer(request))
            response = await handler(service, request)
        except (Gone, ClientDisconnect):
            service.metrics.answered(name, 499, time.monotonic() - began)
            return Response(status_code=499)  # nobody reads it
        except Refusal as error:
            response = json_response(render(error), error.status, error.headers)
        except UserError as error:
            response = json_response(render(Refusal(400, str(error))), 400)
        except Exception:
            log.exception("%s: a request failed", name)
            response = json_response(
                render(Refusal(500, "internal server error; see the log")), 500
            )
        service.metrics.answered(name, response.status_code, time.monotonic() - began)
        return response

    return answer


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


async def body_of(request: Request, settings: Settings) -> bytes:
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
    body = await body_of(request, settings)
    content_type = request.headers.get("content-type", "")
    form = media_type(content_type)
    curls = form == ENCODED and body.lstrip().startswith(b"{")  # it calls everything a form
    try:
        if form in (ENCODED, IN_PARTS) and not curls:
            return msgspec.convert(fields_of(body, content_type), kind, strict=False)
        return msgspec.json.decode(body, type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeError, ValueError) as error:
        raise Refusal(400, _reason(error)) from None
    except RecursionError:
        raise Refusal(400, "the JSON is nested too deeply") from None


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "the body is not valid UTF-8"
    text = str(error).replace("`", "")
    return (text if text.startswith("JSON") else text[:1].lower() + text[1:])[:300]


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
