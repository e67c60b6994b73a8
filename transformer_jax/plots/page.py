"""A self-contained HTML page: data, style, program and plotting library.

The data are embedded as compressed JSON, as the text of a test set makes up most of it. The page's
content security policy allows only its two hashed scripts and no requests. Text from a corpus is
never treated as mark-up: the page's program inserts it as text only.
"""

import base64
import gzip
import hashlib
import html
import json
import string
from contextlib import suppress
from importlib import resources
from importlib.metadata import version
from typing import Any

from transformer_jax.base.disk import cache_dir, write_text

MOST_BYTES = 2_000_000  # of a page


def render(report: dict[str, Any]) -> str:
    """Return the page of a report from `reports.report.gather`.

    If the page would exceed MOST_BYTES, sentences other than the picked ones are left out, which
    the page says, and finally attention.
    """
    library, smaller = _script(_library()), {**report, "left_out": 0}
    page = _filled(smaller, library)
    while len(page.encode()) > MOST_BYTES:
        next_smaller = _smaller(smaller)
        if next_smaller is None:
            break
        smaller, page = next_smaller, _filled(next_smaller, library)
    return page


def unpack(page: str) -> dict[str, Any]:
    """Return the report that a page was rendered from."""
    packed = page.partition('<script type="application/gzip" id="data">')[2].partition("<")[0]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def _library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one program, cached since bundling takes seconds."""
    kept = cache_dir() / f"vega-of-vl-convert-{version('vl-convert-python')}.js"
    with suppress(OSError):
        return kept.read_text(encoding="utf-8")
    import vl_convert

    text = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    with suppress(OSError):  # without a cache it is bundled every time
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_text(kept, text)
    return text


def _script(text: str) -> tuple[str, str]:
    """Return a program escaped for inclusion in a page, and its hash for the page's policy."""
    text = text.replace("</script", r"<\/script").replace("<!--", r"<\!--")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return text, f"'sha256-{digest}'"


def _filled(report: dict[str, Any], library: tuple[str, str]) -> str:
    program = _script("".join(_file(name) for name in ("charts.js", "sentences.js", "report.js")))
    text = json.dumps(report, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    packed = base64.b64encode(gzip.compress(text.encode(errors="replace"), mtime=0)).decode()
    return string.Template(_file("report.html")).substitute(
        title=html.escape(report["title"]),
        policy=f"{library[1]} {program[1]}",
        style=_file("report.css"),
        library=library[0],
        program=program[0],
        data=packed,
    )


def _file(name: str) -> str:
    return (resources.files("transformer_jax.plots") / "web" / name).read_text(encoding="utf-8")


def _smaller(report: dict[str, Any]) -> dict[str, Any] | None:
    """Return the report without half of what can still be left out; None if nothing can."""
    kept = {i for kind in report["picked"].values() for i in kind}
    others = [s["line"] for s in report["sentences"] if s["line"] - 1 not in kept]
    if others:
        dropped = set(others[len(others) // 2 :])
        rows = [s for s in report["sentences"] if s["line"] not in dropped]
        return {**report, "sentences": rows, "left_out": report["left_out"] + len(dropped)}
    shown = [s["line"] for s in report["sentences"] if any("attention" in t for t in s["systems"])]
    bare = set(shown[len(shown) // 2 :])
    rows = [_bare(s) if s["line"] in bare else s for s in report["sentences"]]
    return {**report, "sentences": rows} if bare else None


def _bare(sentence: dict[str, Any]) -> dict[str, Any]:
    systems = [{k: v for k, v in t.items() if k != "attention"} for t in sentence["systems"]]
    return {**sentence, "systems": systems}
