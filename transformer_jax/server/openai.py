"""OpenAI's protocol for completions: /v1/completions and /v1/models, for clients that speak it.

Unsupported fields are accepted with their neutral values, and refused with others. `top_k` and what
follows it are vLLM's.
"""

import asyncio
import re
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from transformer_jax.base.errors import UserError
from transformer_jax.config.choices.searches import GREEDY, samples
from transformer_jax.decoding.text.likelihood import Likelihood
from transformer_jax.server import logprobs
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
from transformer_jax.server.texts import Part, Patience, Prompt, Text, parts_of, refused, texts

_TOKENS = 16  # by default, as in the protocol
_MADE = int(time.time())
STOPS = 16  # strings, at most
_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (None, 0), "presence_penalty": (None, 0), "logit_bias": (None, {}),
}  # fmt: skip
Tokens = list[int]


class StreamOptions(Struct, forbid_unknown_fields=True, kw_only=True):
    """Options of a stream."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None  # vLLM's: usage so far with every part


class Completion(Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/completions"""

    model: str
    prompt: str | list[str | int | list[int]] = ""  # texts or tokens, one or several
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = 1.0
    n: Annotated[int, Meta(ge=1, le=128)] | None = 1
    stop: str | Annotated[list[str], Meta(max_length=STOPS)] | None = None
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
    top_k: Annotated[int, Meta(ge=-1)] | None = None  # 0 and -1: all
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    add_special_tokens: bool | None = True  # what documents begin with, before a text
    return_tokens_as_token_ids: bool | None = False

    def prompts(self) -> list[str | Tokens]:
        """Return the prompts."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        tokens = [each for each in self.prompt if isinstance(each, int)]
        if tokens and len(tokens) == len(self.prompt):
            return [tokens]
        several = [each for each in self.prompt if not isinstance(each, int)]
        if tokens or not several:
            what = "holds tokens beside other prompts" if tokens else "an empty list"
            raise Refusal(400, f"prompt: {what}; give texts, or lists of tokens",
                          param="prompt", code="invalid_type")  # fmt: skip
        return several

    def fields(self) -> dict[str, Any]:
        """Return the decoding fields that the request sets."""
        penalty = {"repetition_penalty": self.repetition_penalty or 1.0}
        if self.temperature == 0:
            return GREEDY | penalty
        drawn = {"temperature": 1.0 if self.temperature is None else self.temperature,
                 "top_p": 1.0 if self.top_p is None else self.top_p,
                 "top_k": max(self.top_k or 0, 0), "min_p": self.min_p or 0.0}  # fmt: skip
        if self.seed is not None:
            drawn["seed"] = self.seed % 2**32
        return samples(self.n or 1) | drawn | penalty

    def stops(self) -> list[str]:
        """Return the strings that end a text."""
        listed = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [text for text in listed if text]


def served(service: Service, name: str | None) -> Served:
    """Return the model, if it completes prompts, and has this name, if one is given.

    Raises:
      Refusal: if not.
    """
    model = service.model
    if not model.generates:
        raise Refusal(404, "this model does not complete prompts", code="model_not_found")
    if name not in (None, service.settings.name):
        raise Refusal(404, f"the model {str(name)[:80]!r} does not exist; see /v1/models",
                      param="model", code="model_not_found")  # fmt: skip
    return model


def check(model: Served, asked: Completion) -> None:
    """Refuse what is not supported."""

    def unsupported(name: str, why: str) -> Refusal:
        return Refusal(400, f"{name}{why}", param=name, code="unsupported_parameter")

    for name, neutral in _NEUTRAL.items():
        if getattr(asked, name) not in neutral:
            raise unsupported(name, " is not supported; leave it out")
    if asked.best_of not in (None, asked.n or 1):
        raise unsupported("best_of", f"={asked.best_of} is not supported: must be n, or left out")
    if asked.stream_options is not None and not asked.stream:
        raise unsupported("stream_options", ": only a stream has them; set stream, or leave them "
                          "out")  # fmt: skip
    if asked.logprobs is not None and (why := logprobs.refusal(model, asked.logprobs)):
        raise unsupported("logprobs", why)


async def completions(service: Service, request: Request) -> Response:
    """Complete prompts."""
    asked = await read(request, Completion, service.settings)
    model = served(service, asked.model)
    check(model, asked)
    several = asked.prompts()
    check_texts([each for each in several if isinstance(each, str)], service.settings)
    check_texts(asked.stops(), service.settings, STOPS)
    if len(several) * (asked.n or 1) > service.settings.max_texts:
        raise Refusal(413, f"more than {service.settings.max_texts} texts; ask for fewer",
                      param="prompt", code="invalid_value")  # fmt: skip
    with refused():
        service.worker.check(len(several) * (asked.n or 1))
    first = 1 if asked.seed is not None else service.numbers(len(several))
    prompts = [_prompt(model, asked, text, first + i) for i, text in enumerate(several)]
    return await answered(service, request, model, asked, prompts, COMPLETION)


class Form(NamedTuple):
    """How an answer is written."""

    mark: str  # of its id
    whole: str  # what it is called; `part`: in a stream
    part: str
    # The choice with an index, a text, why it ended, and its log-probabilities.
    choice: Callable[[int, str, str | None, Any], dict[str, Any]]
    # The same of a part in a stream, and whether it is the first of its text.
    delta: Callable[[int, str, str | None, Any, bool], dict[str, Any]]


async def answered(
    service: Service, request: Request, model: Served, asked: Completion, prompts: list[Prompt],
    form: Form,
) -> Response:  # fmt: skip
    """Return the answer to prompts, at once or as a stream."""
    head = {"id": f"{form.mark}-{uuid.uuid4().hex}",
            "object": form.part if asked.stream else form.whole,
            "created": int(time.time()), "model": service.settings.name}  # fmt: skip
    patience = Patience(service.settings.timeout)
    if asked.stream:
        events = _events(service, model, asked, prompts, head, patience, form)
        most = patience.seconds + service.settings.patience
        return await streamed(request, events, "text/event-stream", most)
    work = _choices(service, model, asked, prompts, patience, form)
    choices, written = await unless_gone(request, work)
    return json_response({**head, "choices": choices, "usage": _usage(prompts, written)})


def _prompt(model: Served, asked: Completion, given: str | Tokens, number: int) -> Prompt:
    n = asked.n or 1
    generator = model.generator(asked.fields(), 1 if asked.temperature == 0 else n)
    plain = given
    if isinstance(given, str) and (asked.add_special_tokens is False or model.chats):
        begins = model.begins and asked.add_special_tokens is not False
        (plain,) = model.trained.tokenizers.tgt.encode([given], bos=begins, eos=False)
    try:
        if asked.suffix:
            plain = _gap(generator, given, asked.suffix)
        asking, ids = model.prompting(generator, plain, asked.max_tokens, n, number, _TOKENS)
    except UserError as error:
        param = _field_of(str(error)) or "prompt"
        code = "unsupported_parameter" if param == "suffix" else "context_length_exceeded"
        raise Refusal(400, str(error), param=param, code=code) from None
    text = given if isinstance(given, str) else generator.text(ids, [])
    return Prompt(generator, asking, ids, text, asked.stops())


def _gap(generator: Any, prompt: str | Tokens, suffix: str) -> Tokens:
    """Return what is read before the text between a prompt and a suffix is written."""
    if not isinstance(prompt, str):
        raise UserError("suffix: is for prompts that are texts; give the prompt as text")
    return generator.reader.gap(prompt, suffix)


async def _choices(
    service: Service, model: Served, asked: Completion, prompts: list[Prompt], patience: Patience,
    form: Form,
) -> tuple[list[dict[str, Any]], int]:  # fmt: skip
    """Return the choices for prompts, searched together, and how many tokens are written."""
    last, n = time.monotonic() + patience.seconds, asked.n or 1
    nothing = [[Text("", 0, [], "length")] * n] * len(prompts)
    texts = nothing if asked.max_tokens == 0 else await _all(service, model, prompts, patience)
    pairs = [(prompt, text) for prompt, some in zip(prompts, texts, strict=True) for text in some]
    rows: list[dict[str, Any] | None] = [None] * len(pairs)
    if asked.logprobs is not None:
        wholes = [[*prompt.read, *text.ids] for prompt, text in pairs]
        seconds = last - time.monotonic()
        said = await logprobs.likelihoods(service, model, wholes, seconds)
        begins = [0 if asked.echo else len(prompt.read) for prompt, _ in pairs]
        rated = zip(wholes, said, begins, strict=True)
        rows = [_scored(model, asked, *each)[0] for each in rated]
    shown = [prompt.given * bool(asked.echo) + text.written for prompt, text in pairs]
    choices = [form.choice(i, shown[i], text.finish, rows[i]) for i, (_, text) in enumerate(pairs)]
    return choices, sum(len(text.ids) for _, text in pairs)


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


async def _nothing(count: int) -> AsyncGenerator[Part]:
    """Yield the ends of texts that are not to be written."""
    for place in range(count):
        yield Part(place, "", "length")


async def _events(
    service: Service, model: Served, asked: Completion, prompts: list[Prompt],
    head: dict[str, Any], patience: Patience, form: Form,
) -> AsyncGenerator[bytes]:  # fmt: skip
    began, n = time.monotonic(), asked.n or 1
    counts: dict[int, int] = {}  # of tokens written, by place
    offsets: dict[int, int] = {}  # where the next token begins
    options = asked.stream_options or StreamOptions()
    parts = _nothing(n * len(prompts))
    if asked.max_tokens != 0:
        parts = parts_of(service, model, prompts, patience)
    try:
        async for part in parts:
            if not counts:
                service.metrics.first_token.observe(time.monotonic() - began)
            prompt, shown, row = prompts[part.place // n], part.text, None
            begin = len(prompt.read) + counts.get(part.place, 0)
            if asked.echo and part.place not in counts:
                begin, shown = 0, prompt.given + shown
            if asked.logprobs is not None:
                seconds = began + patience.seconds - time.monotonic()
                ids = [*prompt.read, *part.ids]
                (said,) = await logprobs.likelihoods(service, model, [ids], seconds)
                offset = offsets.get(part.place, 0)
                row, offsets[part.place] = _scored(model, asked, ids, said, begin, offset)
            begins = part.place not in counts
            counts[part.place] = part.tokens
            choices = [form.delta(part.place, shown, part.finish, row, begins)]
            usage = {"usage": _usage(prompts, sum(counts.values()))}
            often = options.include_usage and options.continuous_usage_stats
            yield event({**head, "choices": choices} | (usage if often else {}))
        if options.include_usage:
            usage = {"usage": _usage(prompts, sum(counts.values()))}
            yield event({**head, "choices": [], **usage})
    except Refusal as error:
        if not counts:
            raise
        yield event(rendered(error))
    yield b"data: [DONE]\n\n"


def _scored(
    model: Served, asked: Completion, ids: Tokens, said: Likelihood, begin: int, offset: int = 0
) -> tuple[dict[str, Any], int]:
    """Return the log-probabilities of tokens from `begin` on, and where the next one begins."""
    as_ids, codec = bool(asked.return_tokens_as_token_ids), model.trained.tokenizers.tgt
    return logprobs.rows(codec, ids, said, begin, asked.logprobs or 0, offset, as_ids)


def _choice(
    index: int, text: str, finish: str | None, row: dict[str, Any] | None
) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": row, "finish_reason": finish}


def _part(
    index: int, text: str, finish: str | None, row: dict[str, Any] | None, begins: bool
) -> dict[str, Any]:
    return _choice(index, text, finish, row)


COMPLETION = Form("cmpl", "text_completion", "text_completion", _choice, _part)


def _usage(prompts: list[Prompt], written: int) -> dict[str, int]:
    read = sum(len(prompt.read) for prompt in prompts)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


async def models(service: Service, request: Request) -> Response:
    """Return the served model as a list."""
    served(service, None)
    return json_response({"object": "list", "data": [_row(service)]})


async def model(service: Service, request: Request) -> Response:
    """Describe a model."""
    served(service, request.path_params["name"])
    return json_response(_row(service))


def _row(service: Service) -> dict[str, Any]:
    return {"id": service.settings.name, "object": "model", "created": _MADE,
            "owned_by": "transformer_jax"}  # fmt: skip


def no_template() -> Refusal:
    """Return the refusal of a conversation."""
    return Refusal(
        400, "messages: this model has no chat template, which would make one prompt of them; "
        "write the prompt yourself, and send it to /v1/completions",
        param="messages", code="unsupported_parameter",
    )  # fmt: skip


_FIELD = re.compile(r"(?:config\.)?(?:decoding\.)?(\w+)(?:=| \d+: |: )")


def _field_of(message: str) -> str | None:
    """Return the field of a request that a message begins with, if any."""
    matched = _FIELD.match(message)
    return matched[1] if matched and matched[1] in Completion.__struct_fields__ else None


def rendered(error: Refusal) -> dict[str, Any]:
    """Return an error in this protocol's form."""
    kind = _TYPES.get(error.status) or (
        "server_error" if error.status >= 500 else "invalid_request_error"
    )
    param = error.param or (_field_of(error.message) if error.status < 500 else None)
    code = error.code or _CODES.get(error.status) or ("invalid_value" if param else error.type)
    return {"error": {"message": error.message, "type": kind, "param": param, "code": code}}
