"""OpenAI's protocol for conversations: /v1/chat/completions.

A conversation becomes a prompt of pieces by the model's chat template, and is then searched as any
prompt of /v1/completions.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from transformer_jax.base.errors import UserError
from transformer_jax.decoding.text.generate import Generator
from transformer_jax.server.http import Refusal, check_texts, read
from transformer_jax.server.model import Served
from transformer_jax.server.openai import (
    STOPS,
    Completion,
    Form,
    StreamOptions,
    answered,
    check,
    no_template,
    served,
)
from transformer_jax.server.service import Service
from transformer_jax.server.texts import Prompt, refused

_TEXT = {"type": "text"}
# What is not supported, with the values that ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "tools": (None, []), "functions": (None, []), "tool_choice": (None, "none", "auto"),
    "function_call": (None, "none", "auto"), "response_format": (None, _TEXT),
    "logprobs": (None, False), "top_logprobs": (None, 0), "audio": (None,),
    "modalities": (None, ["text"]), "prediction": (None,), "web_search_options": (None,),
}  # fmt: skip


class Conversation(Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/chat/completions"""

    model: str
    messages: list[dict[str, Any]]
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=0)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = 1.0
    n: Annotated[int, Meta(ge=1, le=128)] | None = 1
    stop: str | Annotated[list[str], Meta(max_length=STOPS)] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    seed: int | None = None
    user: str | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None  # as in other engines
    # What says nothing about the text.
    store: bool | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    # See _NEUTRAL.
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    tool_choice: Any = None
    function_call: Any = None
    response_format: Any = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    audio: Any = None
    modalities: list[str] | None = None
    prediction: Any = None
    web_search_options: Any = None

    def completion(self) -> Completion:
        """Return the completion that it is, but for its prompt."""
        most = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        same = (
            "model", "temperature", "top_p", "n", "stop", "stream", "stream_options", "seed",
            "frequency_penalty", "presence_penalty", "logit_bias", "top_k", "min_p",
            "repetition_penalty",
        )  # fmt: skip
        return Completion(max_tokens=most, **{name: getattr(self, name) for name in same})


async def completions(service: Service, request: Request) -> Response:
    """Answer a conversation."""
    conversation = await read(request, Conversation, service.settings)
    model = served(service, conversation.model)
    if not model.chats:
        raise no_template()
    for name, neutral in _NEUTRAL.items():
        if getattr(conversation, name) not in neutral:
            raise Refusal(400, f"{name} is not supported; leave it out", param=name,
                          code="unsupported_parameter")  # fmt: skip
    asked = conversation.completion()
    check(model, asked)
    check_texts(asked.stops(), service.settings, STOPS)
    check_texts([x for message in conversation.messages for x in message.values()
                 if isinstance(x, str)], service.settings)  # fmt: skip
    with refused():
        service.worker.check(asked.n or 1)
    number = 1 if asked.seed is not None else service.numbers(1)
    prompt = _prompt(model, asked, conversation, number)
    return await answered(service, request, model, asked, [prompt], CHAT)


def _prompt(model: Served, asked: Completion, conversation: Conversation, number: int) -> Prompt:
    n = asked.n or 1
    generator = model.generator(asked.fields(), 1 if asked.temperature == 0 else n)
    ids = prompt_of(generator, conversation.messages, conversation.chat_template_kwargs)
    try:
        asking, read_ids = model.prompting(generator, ids, asked.max_tokens, n, number)
    except UserError as error:
        raise Refusal(400, str(error), param="messages", code="context_length_exceeded") from None
    return Prompt(generator, asking, read_ids, "", asked.stops())


def prompt_of(
    generator: Generator, messages: Any, options: dict[str, Any] | None = None
) -> list[int]:
    """Return the pieces that an answer to messages follows; `options` are the chat template's.

    Raises:
      Refusal: if the messages are malformed, or the chat template refuses them.
    """
    try:
        return generator.reader.asked(messages, options=options)
    except UserError as error:
        raise Refusal(400, str(error), param="messages", code="invalid_value") from None


def _choice(index: int, text: str, finish: str | None, row: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "refusal": None}
    return {"index": index, "message": message, "logprobs": None, "finish_reason": finish}


def _delta(index: int, text: str, finish: str | None, row: Any, begins: bool) -> dict[str, Any]:
    delta = {"content": text} if begins or text else {}
    delta = {"role": "assistant"} | delta if begins else delta
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}


CHAT = Form("chatcmpl", "chat.completion", "chat.completion.chunk", _choice, _delta)
