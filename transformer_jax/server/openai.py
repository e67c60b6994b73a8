"""OpenAI's protocol for completions: /v1/completions and /v1/models, for clients that speak it.

Unsupported fields are accepted with their neutral values, and refused with others.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from transformer_jax.config.choices.searches import GREEDY, samples
from transformer_jax.server.http import (
    Refusal,
    check_texts,
    event,
    json_response,
    read,
    streamed,
    unless_gone,
)
from transformer_jax.server.model import Served
from transformer_jax.server.service import Service
from transformer_jax.server.texts import Patience, Prompt, Text, parts_of, refused, texts

_TOKENS = 16  # by default, as in the protocol
_MADE = int(time.time())
_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (None, 1), "frequency_penalty": (None, 0), "presence_penalty": (None, 0),
    "logit_bias": (None, {}), "logprobs": (None,), "suffix": (None, ""),
}  # fmt: skip


class StreamOptions(Struct, forbid_unknown_fields=True, kw_only=True):
    """Options of a stream."""

    include_usage: bool | None = None


class Completion(Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/completions"""

    model: str
    prompt: str | list[str] = ""
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = 1.0
    n: Annotated[int, Meta(ge=1, le=128)] | None = 1
    stop: str | Annotated[list[str], Meta(max_length=4)] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    echo: bool | None = False
    seed: int | None = None
    user: str | None = None
    best_of: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: int | None = None
    suffix: str | None = None

    def fields(self) -> dict[str, Any]:
        """Return the decoding fields that the request sets."""
        if self.temperature == 0:
            return GREEDY
        drawn = {"temperature": 1.0 if self.temperature is None else self.temperature,
                 "top_p": 1.0 if self.top_p is None else self.top_p, "top_k": 0}  # fmt: skip
        if self.seed is not None:
            drawn["seed"] = self.seed % 2**32
        return samples(self.n or 1) | drawn

    def stops(self) -> list[str]:
        """Return the strings that end a text."""
        found = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [text for text in found if text]


def _model(service: Service, name: str) -> Served:
    model = service.model
    if not model.generates:
        raise Refusal(404, "this model does not complete prompts")
    if name != service.settings.name:
        raise Refusal(404, f"the model {name[:80]!r} does not exist; see /v1/models")
    return model


async def completions(service: Service, request: Request) -> Response:
    """Complete prompts."""
    asked = await read(request, Completion, service.settings)
    model = _model(service, asked.model)
    for name, neutral in _NEUTRAL.items():
        if getattr(asked, name) not in neutral:
            raise Refusal(400, f"{name} is not supported; leave it out")
    if asked.stream_options is not None and not asked.stream:
        raise Refusal(400, "stream_options: only a stream has them; set stream, or leave them out")
    several = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt
    if not several:
        raise Refusal(400, "prompt: an empty list; give at least one")
    check_texts(several, service.settings)
    check_texts(asked.stops(), service.settings, 4)
    if len(several) * (asked.n or 1) > service.settings.max_texts:
        raise Refusal(413, f"more than {service.settings.max_texts} texts; ask for fewer")
    with refused():
        service.worker.check(len(several) * (asked.n or 1))
    first = 1 if asked.seed is not None else service.numbers(len(several))
    prompts = [_prompt(model, asked, text, first + i) for i, text in enumerate(several)]
    head = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion",
            "created": int(time.time()), "model": service.settings.name}  # fmt: skip
    patience = Patience(service.settings.timeout)
    if asked.stream:
        events = _events(service, model, asked, prompts, head, patience)
        most = patience.seconds + service.settings.patience
        return await streamed(request, events, "text/event-stream", most)
    choices: list[dict[str, Any]] = []
    written = 0
    found = await unless_gone(request, _all(service, model, prompts, patience))
    for prompt, some in zip(prompts, found, strict=True):
        for text in some:
            shown = prompt.given * bool(asked.echo) + text.written
            choices.append(_choice(len(choices), shown, text.finish))
            written += len(text.ids)
    return json_response({**head, "choices": choices, "usage": _usage(prompts, written)})


async def _all(
    service: Service, model: Served, prompts: list[Prompt], patience: Patience
) -> list[list[Text]]:
    """Return the texts of prompts, searched together; all of them or none."""
    tasks = [asyncio.create_task(texts(service, model, prompt, patience)) for prompt in prompts]
    try:
        return [await task for task in tasks]
    finally:
        for task in tasks:
            task.cancel()


def _prompt(model: Served, asked: Completion, text: str, number: int) -> Prompt:
    n = asked.n or 1
    generator = model.generator(asked.fields(), 1 if asked.temperature == 0 else n)
    asking, ids = model.prompting(generator, text, asked.max_tokens, n, number, _TOKENS)
    return Prompt(generator, asking, ids, text, asked.stops())


async def _events(
    service: Service, model: Served, asked: Completion, prompts: list[Prompt],
    head: dict[str, Any], patience: Patience,
) -> AsyncGenerator[bytes]:  # fmt: skip
    began, n = time.monotonic(), asked.n or 1
    counts: dict[int, int] = {}
    try:
        async for part in parts_of(service, model, prompts, patience):
            if not counts:
                service.metrics.first_token.observe(time.monotonic() - began)
            shown = part.text
            if asked.echo and part.place not in counts:
                shown = prompts[part.place // n].given + shown
            counts[part.place] = part.tokens
            yield event({**head, "choices": [_choice(part.place, shown, part.finish)]})
        if asked.stream_options is not None and asked.stream_options.include_usage:
            usage = _usage(prompts, sum(counts.values()))
            yield event({**head, "choices": [], "usage": usage})
    except Refusal as error:
        if not counts:
            raise
        yield event(rendered(error))
    yield b"data: [DONE]\n\n"


def _choice(index: int, text: str, finish: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish}


def _usage(prompts: list[Prompt], written: int) -> dict[str, int]:
    read = sum(len(prompt.read) for prompt in prompts)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


async def models(service: Service, request: Request) -> Response:
    """Return the served model as a list."""
    _model(service, service.settings.name)
    return json_response({"object": "list", "data": [_row(service)]})


async def model(service: Service, request: Request) -> Response:
    """Describe a model."""
    _model(service, request.path_params["name"])
    return json_response(_row(service))


def _row(service: Service) -> dict[str, Any]:
    return {"id": service.settings.name, "object": "model", "created": _MADE,
            "owned_by": "transformer_jax"}  # fmt: skip


def rendered(error: Refusal) -> dict[str, Any]:
    """Return an error in this protocol's form."""
    kind = _TYPES.get(error.status) or (
        "server_error" if error.status >= 500 else "invalid_request_error"
    )
    return {"error": {"message": error.message, "type": kind, "param": None, "code": error.type}}
