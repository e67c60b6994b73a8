"""The project's own protocol: /api/model, translate, batches, generate, score and
predict."""

import asyncio
import functools
import time
from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from transformer_jax.config import DecodingConfig
from transformer_jax.config.choices.searches import GREEDY, samples
from transformer_jax.data.codecs.codec import VectorCodec
from transformer_jax.decoding.text.translation import Translation
from transformer_jax.server.http import (
    Refusal,
    check_texts,
    event,
    json_response,
    line,
    read,
    read_with_files,
    seconds_for,
    streamed,
    unless_gone,
)
from transformer_jax.server.model import Served
from transformer_jax.server.service import Service
from transformer_jax.server.texts import (
    Patience,
    Prompt,
    Text,
    called,
    check_aligns,
    parts_of,
    texts,
    translations,
)

Seconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1, le=1000)]
Number = Annotated[int, Meta(ge=0, lt=2**31)]

_WINDOW = 16  # texts in progress at a time
_FEW = 8  # texts computed at a time


class Common(Struct, forbid_unknown_fields=True, kw_only=True):
    """Fields of all requests of the native protocol."""

    priority: Literal["normal", "low"] = "normal"
    timeout: Seconds | None = None

    def patience(self, service: Service, low: bool = False) -> Patience:
        """Return how long this request waits."""
        return Patience(seconds_for(self.timeout, service.settings), low or self.priority == "low")


def translating(service: Service) -> Served:
    """Return the model, if it translates.

    Raises:
      Refusal: if it does not.
    """
    if not service.model.translates:
        raise Refusal(404, "this model does not translate; see /api/model")
    return service.model


def _translation_row(model: Served, found: Translation) -> dict[str, Any]:
    """Return a translation as a row of a response."""
    pieces = model.trained.tokenizers.tgt.pieces(found.ids)
    row = {"text": found.text, "score": found.score, "log_prob": found.log_prob, "pieces": pieces}
    return row if found.alignments is None else row | {"alignments": found.alignments}


def _error_row(error: Refusal) -> dict[str, Any]:
    """Return an error as a row of a response."""
    return {"type": error.type, "message": error.message}


def rendered(error: Refusal) -> dict[str, Any]:
    """Return an error in this protocol's form."""
    return {"error": _error_row(error)}


async def about(service: Service, request: Request) -> Response:
    """Describe what the model can do, and the limits of the server."""
    model, settings = service.model, service.settings
    data, decoding = model.trained.experiment.data, model.decoding
    return json_response({
        "model": settings.name, "translates": model.translates, "generates": model.generates,
        "chats": model.chats,
        "aligns": model.aligns, "scores": model.scores, "predicts": model.predicts,
        "verb": model.trained.experiment.verb,
        "source": data.source_language, "target": data.target_language,
        "hypotheses": decoding.hypotheses, "steps": model.trained.steps,
        "limits": {"characters": settings.max_characters, "texts": settings.max_texts,
                   "tokens": settings.max_tokens, "prompt": settings.max_prompt,
                   "positions": model.positions, "seconds": settings.timeout},
    })  # fmt: skip


class Texts(Common):
    """A request with a text, or several."""

    text: str | None = None
    texts: list[str] | None = None

    def lines(self) -> list[str]:
        """Return the texts."""
        if (self.text is None) == (self.texts is None):
            raise Refusal(400, "give either text or texts")
        return [self.text] if self.text is not None else self.texts or []


class Translate(Texts):
    """POST /api/translate"""

    n_best: Count = 1
    prefix: str = ""
    alignments: bool = False
    line: Number | None = None  # the first text's number, on which samples depend


async def translate(service: Service, request: Request) -> Response:
    """Translate texts, each as one line, and answer with all of them in order."""
    asked = await read(request, Translate, service.settings)
    lines = asked.lines()
    check_texts(lines, service.settings)
    check_texts([asked.prefix], service.settings)
    model = translating(service)
    work = translations(
        service, model, lines, asked.patience(service), asked.n_best, asked.prefix,
        asked.alignments, asked.line,
    )  # fmt: skip
    translated = await unless_gone(request, work)
    results = [
        {"translations": [_translation_row(model, t) for t in items]} for items in translated
    ]
    return json_response({"model": service.settings.name, "results": results})


class Batch(Translate):
    """POST /api/batches: large numbers of texts, answered as they finish."""

    priority: Literal["normal", "low"] = "low"


async def batches(service: Service, request: Request) -> Response:
    """Translate many texts, a few at a time, after those of others: JSON lines as they finish."""
    asked = await read(request, Batch, service.settings)
    lines = asked.lines()
    check_texts(lines, service.settings, service.settings.max_batch)
    check_texts([asked.prefix], service.settings)
    model, patience = translating(service), asked.patience(service)
    model.translation(["a"], asked.n_best, asked.prefix, 1)  # errors common to all of them
    check_aligns(model, asked.alignments)
    parts = _batch(service, model, asked, lines, patience)
    most = patience.seconds * (1 + len(lines))
    return await streamed(request, parts, "application/x-ndjson", most)


async def _batch(
    service: Service, model: Served, asked: Batch, lines: list[str], patience: Patience
) -> AsyncGenerator[bytes]:
    async def one(index: int) -> bytes:
        number = None if asked.line is None else asked.line + index
        last = time.monotonic() + patience.seconds
        while True:
            try:
                (translation,) = await translations(
                    service, model, [lines[index]], patience, asked.n_best, asked.prefix,
                    asked.alignments, number,
                )  # fmt: skip
                rows = [_translation_row(model, t) for t in translation]
                return line({"index": index, "translations": rows})
            except Refusal as error:
                if error.status != 429 or time.monotonic() > last:
                    return line({"index": index, "error": _error_row(error)})
                await asyncio.sleep(0.2)
            except ValueError as error:  # a UserError: for this line only
                return line({"index": index, "error": _error_row(Refusal(400, str(error)))})

    tasks: set[asyncio.Task[bytes]] = set()
    left = iter(range(len(lines)))
    try:
        while True:
            for index in left:
                tasks.add(asyncio.create_task(one(index)))
                if len(tasks) == _WINDOW:
                    break
            if not tasks:
                return
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        for task in tasks:
            task.cancel()


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
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: Annotated[int, Meta(ge=0, lt=2**32)] | None = None
    beam_size: int | None = None

    def fields(self, usual: DecodingConfig) -> dict[str, Any]:
        """Return the decoding fields that the request sets, as the options of `generate` do;
        `usual` is the server's own search.
        """
        drawn = _given(
            temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p,
            seed=self.seed,
        )  # fmt: skip
        penalty = _given(repetition_penalty=self.repetition_penalty)
        if drawn or self.sample:
            if self.beam_size is not None:
                raise Refusal(400, "beam_size: cannot be combined with sampling; leave one out")
            return samples(self.n) | drawn | penalty
        if self.beam_size is not None:
            return GREEDY | {"beam_size": self.beam_size} | penalty
        if usual.draws:
            return {usual.record.width: self.n} | penalty
        return GREEDY | penalty if self.stream else penalty


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
    continuations = await unless_gone(request, texts(service, model, prompt, patience))
    rows = [_text(model, text) for text in continuations[: asked.n]]
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
        yield event({"error": _error_row(error)})
        return
    yield event({"done": True})


def _given(**fields: Any) -> dict[str, Any]:
    """Return the fields that are given."""
    return {name: value for name, value in fields.items() if value is not None}


class Score(Common):
    """POST /api/score"""

    texts: list[str] | None = None
    sources: list[str] | None = None
    targets: list[str] | None = None


async def score(service: Service, request: Request) -> Response:
    """Return the log-probabilities of given translations, or of given texts."""
    asked = await read(request, Score, service.settings)
    model = service.model
    if not model.scores:
        raise Refusal(404, "an ensemble cannot score")
    pairs = model.trained.experiment.objective.one_sided is False
    one, two = (asked.sources, asked.targets) if pairs else (asked.texts, asked.texts)
    wanted = "sources and targets, as many of both" if pairs else "texts"
    others = asked.texts if pairs else asked.sources or asked.targets
    if one is None or two is None or others is not None or len(one) != len(two):
        raise Refusal(400, f"give {wanted}")
    check_texts(one, service.settings)
    check_texts(two, service.settings)
    scores = await _in_parts(
        request, service, len(one), asked.patience(service),
        lambda few: model.scored(one[few], two[few] if pairs else None),
    )  # fmt: skip
    rows = [
        {"total": s.total, "log_probs": s.log_probs, "pieces": s.pieces}
        | ({} if pairs else {"perplexity": s.perplexity, "bits_per_byte": s.bits_per_byte})
        for s in scores
    ]
    return json_response({"model": service.settings.name, "results": rows})


async def _in_parts(
    request: Request, service: Service, count: int, patience: Patience,
    compute: Callable[[slice], list],
) -> list[Any]:  # fmt: skip
    """Have the search thread compute rows, a few at a time: others are answered in between."""
    results: list[Any] = []
    deadline = time.monotonic() + patience.seconds
    for start in range(0, count, _FEW):
        call = functools.partial(compute, slice(start, start + _FEW))
        seconds = deadline - time.monotonic()
        results += await unless_gone(request, called(service.worker, call, seconds))
    return results


class Predict(Texts):
    """POST /api/predict: texts, or a form in parts with files of pictures, sounds or series"""

    top: Count = 3  # classes


async def predict(service: Service, request: Request) -> Response:
    """Predict whatever the model was trained for, of texts or of files."""
    settings = service.settings
    asked, files = await read_with_files(request, Predict, settings)
    model, of_text = service.model, asked.text is not None or asked.texts is not None
    if not model.predicts:
        raise Refusal(404, "this model is not for predictions of this kind; see /api/model")
    if isinstance(model.trained.loaded.reads, VectorCodec):
        if of_text or not files:
            raise Refusal(400, "this model reads files; send them in a form (multipart/form-data)")
        if len(files) > settings.max_texts:
            raise Refusal(413, f"{len(files)} files, at most {settings.max_texts} allowed")
        names = [file.name or file.field for file in files]
        contents = [(name, file.content) for name, file in zip(names, files, strict=True)]
        values = await asyncio.to_thread(model.opened, contents)
        places = [{"file": name} for name in names]
    else:
        if files:
            raise Refusal(400, f"{files[0].field}: is a file; send its text as a field")
        values = asked.lines()
        check_texts(values, settings)
        places = [{}] * len(values)
    rows = await _in_parts(
        request, service, len(values), asked.patience(service),
        lambda few: model.predicted(values[few], asked.top),
    )  # fmt: skip
    results = [place | row for place, row in zip(places, rows, strict=True)]
    verb = model.trained.experiment.verb
    return json_response({"model": settings.name, "verb": verb, "results": results})
