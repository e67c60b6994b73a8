"""Bodies of HTML forms: URL-encoded (RFC 1866), or in parts (RFC 7578)."""

from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser
from email.utils import collapse_rfc2231_value
from typing import Any
from urllib.parse import parse_qsl

ENCODED = "application/x-www-form-urlencoded"
IN_PARTS = "multipart/form-data"
_MOST = 100  # fields


def media_type(content_type: str) -> str:
    """Return the type in a header, without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def fields_of(body: bytes, content_type: str) -> dict[str, Any]:
    """Return the fields of a form: a text, or a list of texts for a field that is repeated.

    Raises:
      ValueError: if it is malformed; UnicodeError if it is not valid UTF-8.
    """
    if media_type(content_type) == IN_PARTS:
        pairs = list(_parts(body, content_type))
    else:
        text = body.decode()
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST)
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: texts[0] if len(texts) == 1 else texts for name, texts in found.items()}


def _parts(body: bytes, content_type: str) -> Iterator[tuple[str, str]]:
    """Yield the names and the texts of a form in parts."""
    header = Message()
    header["content-type"] = content_type
    boundary = header.get_boundary()
    if not boundary:
        raise ValueError(f"{IN_PARTS}: the content type names no boundary")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode(errors="replace"))
    if len(parts) < 2 or not parts[-1].startswith(b"--"):
        raise ValueError(f"{IN_PARTS}: the body does not end with its boundary")
    if len(parts) - 2 > _MOST:
        raise ValueError(f"{IN_PARTS}: {len(parts) - 2} parts, at most {_MOST} allowed")
    for part in parts[1:-1]:
        head, gap, value = part.partition(b"\r\n\r\n")
        headers = HeaderParser().parsestr(head.decode().strip())
        given = headers.get_param("name", header="content-disposition")
        if not gap or not given:
            raise ValueError(f"{IN_PARTS}: a part has no name")
        name = collapse_rfc2231_value(given)
        if headers.get_filename() is not None:
            raise ValueError(f"{name}: is a file; send its text as a field")
        yield name, value.decode()
