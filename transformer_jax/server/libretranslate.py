"""LibreTranslate's protocol, for clients that speak it: /translate, /languages, /detect, and what
its own page asks, /frontend/settings and /spec.

Optional fields may be null, which means left out.
"""

import re
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from transformer_jax.decoding.text.long_lines import alike
from transformer_jax.server import markup
from transformer_jax.server.http import (
    Refusal,
    bearer,
    check_key,
    check_texts,
    json_response,
    read,
    unless_gone,
)
from transformer_jax.server.native import translating
from transformer_jax.server.service import Service
from transformer_jax.server.texts import Patience, translations


class Translate(Struct, kw_only=True):
    """POST /translate"""

    q: str | list[str]
    source: str | None = "auto"
    target: str
    format: str | None = "text"
    alternatives: Annotated[int, Meta(ge=0, le=1000)] | None = 0
    api_key: str | None = None


class Detect(Struct):
    """POST /detect"""

    q: str
    api_key: str | None = None


_PAUSE = 500  # ms that LibreTranslate's page waits after a key before it translates
_ENDS = re.compile("(\r\n|\r|\n)")  # of lines; browsers send forms with the first


def _check_key(service: Service, request: Request, given: str | None) -> None:
    """Check the key from the body, as in this protocol, or from a header."""
    check_key(service.settings, given or bearer(request))


async def translate(service: Service, request: Request) -> Response:
    """Translate a text or several, line by line; lines end in the translation as in the text."""
    asked = await read(request, Translate, service.settings)
    _check_key(service, request, asked.api_key)
    model = translating(service)
    data = model.trained.experiment.data
    if asked.source not in (None, "auto") and not _same(asked.source, data.source_language):
        raise Refusal(400, f"{asked.source[:40]} is not supported: the source is "
                      f"{data.source_language}")  # fmt: skip
    if not _same(asked.target, data.target_language):
        raise Refusal(400, f"{asked.target[:40]} is not supported: the target is "
                      f"{data.target_language}")  # fmt: skip
    if asked.format not in (None, "text", "html"):
        raise Refusal(400, f"format: {asked.format[:40]} is not supported: must be text or html")
    several = [asked.q] if isinstance(asked.q, str) else asked.q
    # Lines, and what is in between.
    split: Callable[[str], list[str]] = _ENDS.split
    write: Callable[[str], str] = str
    if asked.format == "html":
        check_texts(several, service.settings)
        split, write = markup.lines_of, markup.written
    texts = [split(text) for text in several]
    lines = [line for text in texts for line in text[::2]]
    check_texts(lines, service.settings)
    alternatives = asked.alternatives or 0
    if alternatives >= model.decoding.hypotheses:
        raise Refusal(400, f"alternatives={alternatives}: at most "
                      f"{model.decoding.hypotheses - 1}")  # fmt: skip
    patience, n_best = Patience(service.settings.timeout), 1 + alternatives
    work = translations(service, model, lines, patience, n_best)
    ranks = iter(await unless_gone(request, work))
    wholes = [_whole([next(ranks) for _ in text[::2]], text[1::2], write) for text in texts]
    return json_response(_answer(asked, data.source_language, wholes))


def _same(asked: str, language: str) -> bool:
    """Return whether a code such as en-US or en_us names a language such as en, or the other way
    round; two regions of one language are two.
    """
    one, other = (code.lower().replace("_", "-") for code in (asked, language))
    return one == other or one.startswith(f"{other}-") or other.startswith(f"{one}-")


def _whole(lines: list[Any], ends: list[str], write: Callable[[str], str]) -> list[str]:
    """Return the text of the lines' best translations, of their second best, and so on."""
    return [
        "".join(
            write(translation.text) + end
            for translation, end in zip(rank, [*ends, ""], strict=True)
        )
        for rank in alike(lines)
    ]


def _answer(asked: Translate, language: str, wholes: list[list[str]]) -> dict[str, Any]:
    best, others = [whole[0] for whole in wholes], [whole[1:] for whole in wholes]
    detected = [{"confidence": 0, "language": language}] * len(wholes)
    one = isinstance(asked.q, str)
    answer: dict[str, Any] = {"translatedText": best[0] if one else best}
    if asked.alternatives:
        answer["alternatives"] = others[0] if one else others
    if asked.source in (None, "auto"):
        answer["detectedLanguage"] = detected[0] if one else detected
    return answer


async def languages(service: Service, request: Request) -> Response:
    """Return the source language and the target language."""
    data = translating(service).trained.experiment.data
    src, tgt = data.source_language, data.target_language
    return json_response(
        [{"code": src, "name": src, "targets": [tgt]}, {"code": tgt, "name": tgt, "targets": []}]
    )


async def detect(service: Service, request: Request) -> Response:
    """Return the only source language, without detection: confidence 0."""
    asked = await read(request, Detect, service.settings)
    _check_key(service, request, asked.api_key)
    data = translating(service).trained.experiment.data
    return json_response([{"confidence": 0, "language": data.source_language}])


async def settings(service: Service, request: Request) -> Response:
    """Return what LibreTranslate's page asks before it shows anything."""
    data, limits = translating(service).trained.experiment.data, service.settings
    sides = {"source": data.source_language, "target": data.target_language}
    return json_response({
        "apiKeys": limits.key is not None, "keyRequired": limits.key is not None,
        "charLimit": limits.max_characters, "frontendTimeout": _PAUSE, "suggestions": False,
        "filesTranslation": False, "supportedFilesFormat": [],
        "language": {side: {"code": code, "name": code} for side, code in sides.items()},
    })  # fmt: skip


async def spec(service: Service, request: Request) -> Response:
    """Describe this protocol, as far as it is spoken here, in OpenAPI's form."""
    bodies = {"/translate": Translate, "/detect": Detect}
    schemas, parts = msgspec.json.schema_components(
        bodies.values(), ref_template="#/components/schemas/{name}"
    )
    responses = {"200": {"description": "done"}, "400": {"description": "refused"}}
    paths: dict[str, Any] = {
        path: {"post": {"responses": responses, "requestBody": {"required": True, "content": {
            "application/json": {"schema": schema}}}}}
        for path, schema in zip(bodies, schemas, strict=True)
    }  # fmt: skip
    for path in ("/languages", "/frontend/settings", "/spec"):
        paths[path] = {"get": {"responses": {"200": responses["200"]}}}
    title = {"title": service.settings.name, "version": version("transformer-jax")}
    return json_response({"openapi": "3.1.0", "info": title, "paths": paths,
                          "components": {"schemas": parts}})  # fmt: skip


def rendered(error: Refusal) -> dict[str, Any]:
    """Return an error in this protocol's form, and in its words where clients know them."""
    if error.code == "missing_required_parameter":
        return {"error": f"Invalid request: missing {error.param} parameter"}
    return {"error": error.message}
