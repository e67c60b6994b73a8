"""The native protocol: /api/generate, whole or as server-sent events."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from transformer_jax.config import DecodingConfig
from transformer_jax.config.choices.searches import GREEDY, samples
from transformer_jax.server.asking import unless_gone
from transformer_jax.server.door import check_texts, json_response, read
from transformer_jax.server.events import event, streamed
from transformer_jax.server.model import Served
from transformer_jax.server.own import Common, Count, error_row
from transformer_jax.server.refusals import Refusal
from transformer_jax.server.service import Service
from transformer_jax.server.texts import Patience, Prompt, Text, field_values, parts_of, texts


class Generate(Common):
    """POST /api/generate"""

    prompt: str = ""
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    n: Count = 1
    stop: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(max_length=16)] = ()
    stream: bool = False
    sample: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: Annotated[int, Meta(ge=0, lt=2**32)] | None = None
    beam_size: int | None = None

    def fields(self, usual: DecodingConfig) -> dict[str, Any]:
        """Return the decoding fields that the request sets, as the options of `generate` do;
        `usual` is the server's own search.
        """
        drawn = field_values(
            temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, seed=self.seed
        )
        if drawn or self.sample:
            if self.beam_size is not None:
                raise Refusal(400, "beam_size: cannot be combined with sampling; leave one out")
            return samples(self.n) | drawn
        if self.beam_size is not None:
            return GREEDY | {"beam_size": self.beam_size}
        if usual.draws:
            return {usual.record.width: self.n}
        return GREEDY if self.stream else {}


async def generate(service: Service, request: Request) -> Response:
    """Continue a prompt: whole, or as server-sent events while it is written."""
    asked = await read(request, Generate, service.settings)
    check_texts([asked.prompt, *asked.stop], service.settings, 17)
    model = service.model
    if not model.generates:
        raise Refusal(404, "this model does not continue prompts; see /api/model")
    if asked.n > service.settings.max_texts:
        raise Refusal(413, f"n={asked.n}: at most {service.settings.max_texts}")
    generator = model.generator(asked.fields(model.decoding), asked.n)
    number = 1 if asked.seed is not None else service.numbers(1)
    asking, ids = model.prompting(generator, asked.prompt, asked.max_tokens, asked.n, number)
    prompt = Prompt(generator, asking, ids, asked.prompt, asked.stop)
    patience = asked.patience(service)
    if asked.stream:
        events = _events(service, model, prompt, patience)
        most = patience.seconds + service.settings.patience
        return await streamed(request, events, "text/event-stream", most)
    found = await unless_gone(request, texts(service, model, prompt, patience))
    rows = [_text(model, text) for text in found[: asked.n]]
    return json_response({"model": service.settings.name, "prompt_tokens": len(ids), "texts": rows})


def _text(model: Served, text: Text) -> dict[str, Any]:
    pieces = model.trained.tokenizers.tgt.pieces(text.ids)
    row = {"text": text.text, "finish": text.finish, "pieces": pieces}
    return row | {"score": text.score, "log_prob": text.log_prob}


async def _events(
    service: Service, model: Served, prompt: Prompt, patience: Patience
) -> AsyncGenerator[bytes]:
    began = asyncio.get_running_loop().time()
    first = True
    try:
        async for part in parts_of(service, model, [prompt], patience):
            if first:
                seconds = asyncio.get_running_loop().time() - began
                service.metrics.first_token.observe(seconds)
                beginning = prompt.generator.text(prompt.read, [])
                yield event({"prompt": beginning, "prompt_tokens": len(prompt.read)})
            first = False
            row = {"index": part.place, "text": part.text}
            yield event(
                row | ({"finish": part.finish, "tokens": part.tokens} if part.finish else {})
            )
    except Refusal as error:
        if first:
            raise
        yield event({"error": error_row(error)})
        return
    yield event({"done": True})
