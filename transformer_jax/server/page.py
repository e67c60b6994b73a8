"""The page at /: one file that needs nothing else, and may do nothing else."""

import base64
import functools
import hashlib
import re
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from transformer_jax.server.service import Service


@functools.cache
def _page() -> tuple[bytes, dict[str, str]]:
    """Return the page, and the headers that allow its own style and program and nothing else."""
    text = (resources.files("transformer_jax.server") / "page.html").read_text(encoding="utf-8")
    hashes = {
        tag: " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"
            for part in re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        )
        for tag in ("style", "script")
    }
    policy = (
        f"default-src 'none'; style-src {hashes['style']}; script-src {hashes['script']}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return text.encode(), {"content-security-policy": policy, "cache-control": "no-cache"}


async def page(service: Service, request: Request) -> Response:
    """Return the page."""
    text, headers = _page()
    return Response(text, headers=headers, media_type="text/html; charset=utf-8")
