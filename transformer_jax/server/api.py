"""The native protocol: /api/translate, /api/score and /api/model."""

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from transformer_jax.server.asking import called, unless_gone
from transformer_jax.server.door import check_texts, json_response, read
from transformer_jax.server.model import Served
from transformer_jax.server.own import Common, Count, Number, translating, translation_row
from transformer_jax.server.refusals import Refusal
from transformer_jax.server.service import Service
from transformer_jax.server.texts import translations


class Translate(Common):
    """POST /api/translate"""

    text: str | None = None
    texts: list[str] | None = None
    n_best: Count = 1
    prefix: str = ""
    alignments: bool = False
    line: Number | None = None  # the first text's number, on which samples depend

    def lines(self) -> list[str]:
        """Return the texts."""
        if (self.text is None) == (self.texts is None):
            raise Refusal(400, "give either text or texts")
        return [self.text] if self.text is not None else self.texts or []


class Score(Common):
    """POST /api/score"""

    texts: list[str] | None = None
    sources: list[str] | None = None
    targets: list[str] | None = None


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
    found = await unless_gone(request, work)
    results = [{"translations": [translation_row(model, t) for t in items]} for items in found]
    return json_response({"model": service.settings.name, "results": results})


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
    found: list[Any] = []
    deadline = time.monotonic() + asked.patience(service).seconds
    for start in range(0, len(one), 8):  # a few at a time: searches continue in between
        few = slice(start, start + 8)
        call = _scoring(model, one[few], two[few] if pairs else None)
        seconds = deadline - time.monotonic()
        found += await unless_gone(request, called(service.worker, call, seconds))
    rows = [
        {"total": s.total, "log_probs": s.log_probs, "pieces": s.pieces}
        | ({} if pairs else {"perplexity": s.perplexity, "bits_per_byte": s.bits_per_byte})
        for s in found
    ]
    return json_response({"model": service.settings.name, "results": rows})


def _scoring(model: Served, sources: list[str], targets: list[str] | None) -> Any:
    return lambda: model.scored(sources, targets)


async def about(service: Service, request: Request) -> Response:
    """Describe what the model can do, and the limits of the server."""
    model, settings = service.model, service.settings
    data, decoding = model.trained.experiment.data, model.decoding
    return json_response({
        "model": settings.name, "translates": model.translates, "generates": model.generates,
        "aligns": model.aligns, "scores": model.scores,
        "source": data.source_language, "target": data.target_language,
        "hypotheses": decoding.hypotheses, "steps": model.trained.steps,
        "limits": {"characters": settings.max_characters, "texts": settings.max_texts,
                   "tokens": settings.max_tokens, "prompt": settings.max_prompt,
                   "positions": model.positions, "seconds": settings.timeout},
    })  # fmt: skip
