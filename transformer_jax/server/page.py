"""The page at /: a single self-contained file, with a strict content security policy."""

import base64
import functools
import hashlib
import html
import string
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from transformer_jax.server.service import Service


@functools.cache
def _page(name: str) -> tuple[bytes, dict[str, str]]:
    """Return the page, and headers that allow only its own style and script."""
    style, script = _file("page.css"), _file("page.js")
    text = string.Template(_file("page.html")).substitute(
        name=html.escape(name), style=style, script=script
    )
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "style-src-attr 'none'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), {"content-security-policy": policy, "cache-control": "no-cache"}


def _file(name: str) -> str:
    return (resources.files("transformer_jax.server") / "web" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


async def page(service: Service, request: Request) -> Response:
    """Return the page."""
    text, headers = _page(service.settings.name)
    return Response(text, headers=headers, media_type="text/html; charset=utf-8")
