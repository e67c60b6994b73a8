"""vLLM's protocol for tokens: /tokenize, /detokenize and /tokenizer_info, which evaluation programs
use to build prompts of tokens for /v1/completions.
"""

from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from transformer_jax.data.codecs.codec import Codec, special_of
from transformer_jax.server.chat import prompt_of
from transformer_jax.server.http import Refusal, check_texts, json_response, read
from transformer_jax.server.model import Served
from transformer_jax.server.openai import no_template, served
from transformer_jax.server.service import Service


class Tokenize(Struct, kw_only=True):
    """POST /tokenize"""

    prompt: str | None = None
    messages: Any = None
    chat_template_kwargs: dict[str, Any] | None = None
    model: str | None = None
    add_special_tokens: bool | None = True  # what documents begin with
    return_token_strs: bool | None = False


class Detokenize(Struct, kw_only=True):
    """POST /detokenize"""

    tokens: list[int]
    model: str | None = None


async def tokenize(service: Service, request: Request) -> Response:
    """Return the tokens of a text. One that spells a special piece, such as </s>, is that piece."""
    asked = await read(request, Tokenize, service.settings)
    model = served(service, asked.model)
    codec = model.trained.tokenizers.tgt
    if asked.messages is not None:
        if not model.chats:
            raise no_template()
        ids = prompt_of(model.generator({}, 1), asked.messages, asked.chat_template_kwargs)
        return _counted(model, codec, ids, asked)
    if asked.prompt is None:
        raise Refusal(400, "prompt: is missing; give a text", None, "prompt",
                      "missing_required_parameter")  # fmt: skip
    check_texts([asked.prompt], service.settings)
    begins = asked.add_special_tokens is not False and model.begins
    named = _special(codec).get(asked.prompt)
    (ids,) = codec.encode([asked.prompt], bos=begins, eos=False) if named is None else [[named]]
    return _counted(model, codec, ids, asked)


def _counted(model: Served, codec: Codec, ids: list[int], asked: Tokenize) -> Response:
    strings = codec.pieces(ids) if asked.return_token_strs else None
    return json_response({"count": len(ids), "max_model_len": model.longest_text, "tokens": ids,
                          "token_strs": strings})  # fmt: skip


async def detokenize(service: Service, request: Request) -> Response:
    """Return the text of tokens, without special pieces."""
    asked = await read(request, Detokenize, service.settings)
    model = served(service, asked.model)
    codec = model.trained.tokenizers.tgt
    wrong = [token for token in asked.tokens if not 0 <= token < codec.size]
    if wrong:
        raise Refusal(400, f"tokens: holds {wrong[0]}, but there are 0 to {codec.size - 1}",
                      param="tokens", code="invalid_value")  # fmt: skip
    eos = special_of(codec).eos
    return json_response({"prompt": codec.decode([i for i in asked.tokens if i != eos])})


async def info(service: Service, request: Request) -> Response:
    """Return how the special pieces are spelled."""
    codec = served(service, None).trained.tokenizers.tgt
    pad, bos, eos = special_of(codec)
    ids = {"bos_token": bos, "eos_token": eos, "pad_token": pad, "unk_token": codec.special.get(
        "unk")}  # fmt: skip
    names = {name: None if i is None else codec.pieces([i])[0] for name, i in ids.items()}
    return json_response({"tokenizer_class": type(codec).__name__, **names})


def _special(codec: Codec) -> dict[str, int]:
    """Return the special pieces by spelling."""
    return {codec.pieces([i])[0]: i for i in codec.special.values()}
