"""The application: routes, their guards, and the headers of all responses."""

import asyncio
import functools
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transformer_jax.base.errors import UserError
from transformer_jax.server import chat, libretranslate, native, openai, tokenizer
from transformer_jax.server.http import Gone, Refusal, Render, bearer, check_key, json_response
from transformer_jax.server.page import page
from transformer_jax.server.service import Service
from transformer_jax.server.texts import refused

log = logging.getLogger("transformer_jax")

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
# The form of errors, by how a path begins; others have that of the native protocol.
_FORMS: dict[str, Render] = {
    **dict.fromkeys(("/v1/", "/tokenize", "/detokenize"), openai.rendered),
    **dict.fromkeys(
        ("/translate", "/detect", "/languages", "/suggest", "/frontend/", "/spec"),
        libretranslate.rendered,
    ),
}
_PREFLIGHT = 3600  # seconds that a browser remembers what a page of another origin may ask


def application(service: Service) -> Starlette:
    """Return the application that serves a model. It compiles in the background once it starts."""

    def route(
        path: str, method: str, handler: Callable[[Service, Request], Awaitable[Response]],
        open_to_all: bool = False, searches: bool = False,
    ) -> Route:  # fmt: skip
        if searches:
            refusals[path] = render_of(path)
        answer = guarded(handler, path, service, render_of(path), open_to_all)
        return Route(path, answer, methods=[method])

    refusals: dict[str, Render] = {}  # of requests that search
    routes = [
        route("/", "GET", page, open_to_all=True),
        route("/health", "GET", health, open_to_all=True),
        route("/ready", "GET", ready, open_to_all=True),
        route("/metrics", "GET", metrics),
        route("/reload", "POST", reload),
        route("/api/model", "GET", native.about),
        route("/api/translate", "POST", native.translate, searches=True),
        route("/api/batches", "POST", native.batches),
        route("/api/generate", "POST", native.generate, searches=True),
        route("/api/score", "POST", native.score),
        route("/api/predict", "POST", native.predict, searches=True),
        # The key may be in the body here: these handlers check it themselves.
        route("/translate", "POST", libretranslate.translate, True, searches=True),
        route("/detect", "POST", libretranslate.detect, open_to_all=True),
        route("/languages", "GET", libretranslate.languages, open_to_all=True),
        route("/frontend/settings", "GET", libretranslate.settings, open_to_all=True),
        route("/spec", "GET", libretranslate.spec, open_to_all=True),
        route("/v1/models", "GET", openai.models),
        route("/v1/models/{name:path}", "GET", openai.model),
        route("/v1/completions", "POST", openai.completions, searches=True),
        route("/v1/chat/completions", "POST", chat.completions, searches=True),
        route("/tokenize", "POST", tokenizer.tokenize),
        route("/detokenize", "POST", tokenizer.detokenize),
        route("/tokenizer_info", "GET", tokenizer.info),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        starting = asyncio.create_task(_start(service))
        yield
        starting.cancel()
        await asyncio.to_thread(service.worker.close)

    app = Starlette(
        routes=routes, lifespan=lifespan,
        exception_handlers={HTTPException: functools.partial(_unknown, service)},
    )  # fmt: skip
    app.router.redirect_slashes = False
    app.add_middleware(_Carrier, service=service, refusals=refusals)
    app.add_middleware(  # outermost, as refusals are for pages to read, too
        CORSMiddleware, allow_origins=service.settings.allow_origins,
        allow_methods=["GET", "POST"], allow_headers=["*"],
        expose_headers=["retry-after"], max_age=_PREFLIGHT,
    )  # fmt: skip
    return app


def render_of(path: str) -> Render:
    """Return what renders the errors of a path, known or not."""
    forms = (render for begin, render in _FORMS.items() if path.startswith(begin))
    return next(forms, native.rendered)


def guarded(
    handler: Callable[[Service, Request], Awaitable[Response]], name: str, service: Service,
    render: Render, open_to_all: bool = False,
) -> Callable[[Request], Awaitable[Response]]:  # fmt: skip
    """Return a handler that requires the key, and always answers in the protocol's form."""

    async def answer(request: Request) -> Response:
        began = time.monotonic()
        try:
            if not open_to_all:
                check_key(service.settings, bearer(request))
            response = await handler(service, request)
        except (Gone, ClientDisconnect):
            service.metrics.answered(name, 499, time.monotonic() - began)
            return Response(status_code=499)  # nobody reads it
        except Refusal as error:
            response = json_response(render(error), error.status, error.headers)
        except UserError as error:
            response = json_response(render(Refusal(400, str(error))), 400)
        except Exception:
            log.exception("%s: a request failed", name)
            response = json_response(
                render(Refusal(500, "internal server error; see the log")), 500
            )
        service.metrics.answered(name, response.status_code, time.monotonic() - began)
        return response

    return answer


async def _start(service: Service) -> None:
    try:
        await service.start()
    except Exception:
        log.exception("the model could not be compiled")
        service.worker.close()


async def _unknown(service: Service, request: Request, error: Any) -> Response:
    said = {404: "no such path", 405: "method not allowed for this path"}
    refusal = Refusal(error.status_code, said.get(error.status_code, "not possible"))
    service.metrics.answered("other", refusal.status, 0.0)
    render = render_of(request.scope["path"])
    return json_response(render(refusal), refusal.status, dict(error.headers or {}))


async def health(service: Service, request: Request) -> Response:
    """Report liveness: 200, or 503 if the process must be restarted."""
    return json_response({"status": "ok"} if service.worker.alive else {"status": "failed"},
                         200 if service.worker.alive else 503)  # fmt: skip


async def ready(service: Service, request: Request) -> Response:
    """Report readiness: 200, or 503 while the server starts or stops."""
    _ = service.model
    return json_response({"status": "ready"})


async def metrics(service: Service, request: Request) -> Response:
    """Return metrics for Prometheus."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def reload(service: Service, request: Request) -> Response:
    """Reload the checkpoint, if allowed."""
    if not service.settings.allow_reload:
        raise Refusal(403, "not allowed: see --allow-reload")
    if not await service.reload():
        raise Refusal(500, "the checkpoint could not be loaded; the previous one stays in use")
    return json_response({"steps": service.model.trained.steps})


class _Carrier:
    """Counts requests until they are fully answered; adds the headers of all responses; refuses
    searches for which the queue has no room before they are read, so that refusing many leaves time
    to answer others.
    """

    def __init__(self, app: ASGIApp, service: Service, refusals: dict[str, Render]) -> None:
        self._app, self._service, self._refusals = app, service, refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def carry(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                new = [pair for pair in _HEADERS if pair[0] not in there]
                if b"cache-control" not in there:
                    new.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*message["headers"], *new]}
            await send(message)

        self._service.active += 1
        try:
            await (self._refusal(scope) or self._app)(scope, receive, carry)
        finally:
            self._service.active -= 1

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the refusal of a request that searches, if the queue is full."""
        path, service = scope["path"], self._service
        if path in self._refusals and scope["method"] == "POST":
            try:
                with refused():
                    service.worker.check(1)
            except Refusal as error:
                if error.status == 429 and _has_key(service, scope):
                    service.metrics.answered(path, error.status, 0.0)
                    return json_response(self._refusals[path](error), error.status, error.headers)
        return None


def _has_key(service: Service, scope: Scope) -> bool:
    """Return whether the headers have the key: without it, another refusal is due."""
    try:
        check_key(service.settings, bearer(Request(scope)))
    except Refusal:
        return False
    return True
