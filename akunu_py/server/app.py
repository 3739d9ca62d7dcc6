"""The application: routes, and what every request passes before it comes to one."""

import secrets
from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from akunu_py.server import chat_completions, completions, embeddings, messages_api, tokenizing
from akunu_py.server.connection import check_header_size
from akunu_py.server.errors import (
    Api,
    Problem,
    RequestError,
    error_body,
    error_headers,
    panics_as_errors,
    problem_of,
)
from akunu_py.server.ollama import embeddings as ollama_embeddings
from akunu_py.server.ollama import models as ollama_models
from akunu_py.server.ollama import replies as ollama_replies
from akunu_py.server.page import page
from akunu_py.server.page.rendering import render
from akunu_py.server.responses import route as responses
from akunu_py.server.security import LOCAL_PAGES, Access
from akunu_py.server.service import Service
from akunu_py.server.status import health, metrics, model_list, one_model, present, props, version
from akunu_py.system.errors import AkunuError

_INSTEAD = {
    "/completion": "use /v1/completions",
    "/completions": "use /v1/completions",
    "/infill": "use /v1/completions with suffix",
    "/slots": "/health says how many replies are made, and /metrics what they cost",
}
"""What there is for paths of llama.cpp's server."""


def make_app(service: Service, access: Access) -> Starlette:
    """Return the application that answers requests with a service."""
    app = Starlette(
        routes=[
            Route(chat_completions.PATH, chat_completions.chat_completions, methods=["POST"]),
            Route("/chat/completions", chat_completions.chat_completions, methods=["POST"]),
            Route("/apply-template", chat_completions.apply_template, methods=["POST"]),
            Route(completions.PATH, completions.completions, methods=["POST"]),
            *responses.ROUTES,
            Route(messages_api.PATH, messages_api.messages, methods=["POST"]),
            Route(messages_api.PATH + "/count_tokens", messages_api.count_tokens, methods=["POST"]),
            Route("/v1/models", model_list),
            Route("/models", model_list),
            Route("/v1/models/{name}", one_model),
            Route(ollama_replies.CHAT, ollama_replies.chat, methods=["POST"]),
            Route(ollama_replies.GENERATE, ollama_replies.generate, methods=["POST"]),
            *ollama_models.ROUTES,
            *ollama_embeddings.ROUTES,
            *embeddings.ROUTES,
            *tokenizing.ROUTES,
            *(Route(path, page) for path in ("/", "/worker.js")),
            Route("/render", render, methods=["POST"]),
            *(Route(path, present) for path in ("/api/hello", "/ping", "/v1")),
            *(Route(path, health) for path in ("/health", "/healthz", "/v1/health")),
            Route("/version", version),
            Route("/metrics", metrics),
            Route("/props", props),
        ],
        middleware=[
            Middleware(_Gate, access=access),
            Middleware(
                CORSMiddleware,
                allow_origins=access.origins,
                allow_origin_regex=LOCAL_PAGES,
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=["*"],
                expose_headers=["x-akunu-cache", "x-akunu-ignored", "x-request-id"],
            ),
            Middleware(_KeyCheck, access=access),
        ],
        exception_handlers={
            AkunuError: _answer_error,
            HTTPException: _answer_http_error,
            ClientDisconnect: _answer_nothing,
        },
    )
    # A client that follows no redirects would see neither a reply nor an error.
    app.router.redirect_slashes = False
    app.state.service = service
    return app


class _Gate:
    """Refuses foreign hosts and origins, gives each request an id, and answers unexpected errors.

    Starlette would raise them again, and uvicorn then close a connection that a client keeps open.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = "req_" + secrets.token_hex(12)
        scope.setdefault("state", {})["request_id"] = request_id
        scope["path"] = scope["path"].rstrip("/") or "/"

        begun = False

        async def with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                # The second name is the one that Anthropic's SDK reads.
                headers["x-request-id"] = headers["request-id"] = request_id
                headers["x-content-type-options"] = "nosniff"
            await send(message)

        headers = Headers(scope=scope)
        try:
            check_header_size(scope)
            self._access.check_host(headers)
            self._access.check_origin(headers)
            with panics_as_errors():
                await self._app(scope, receive, with_headers)
        except Exception as error:
            if begun:
                raise
            await _error(HttpRequest(scope), problem_of(error))(scope, receive, with_headers)
        finally:
            scope["app"].state.service.bodies.let_go(request_id)


class _KeyCheck:
    """Refuses requests without a key, where one is asked for, and names the client."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                client = self._access.client(scope["path"], Headers(scope=scope))
            except RequestError as error:
                await _error(HttpRequest(scope), problem_of(error))(scope, receive, send)
                return
            scope["state"]["client"] = client
        await self._app(scope, receive, send)


async def _answer_error(http: HttpRequest, error: Exception) -> Response:
    return _error(http, problem_of(error))


async def _answer_http_error(http: HttpRequest, error: Exception) -> Response:
    """Answer a path or method that does not exist."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    if error.status_code == 404:
        instead = _INSTEAD.get(http.url.path, "docs/server-reference.md lists its paths")
        message = f"this server has no {http.url.path[:200]}; {instead}"
    elif error.status_code == 405:
        message = f"{http.url.path} does not take {http.method[:20]}"
    else:
        message = error.detail
    return _error(http, Problem(error.status_code, message), error.headers)


async def _answer_nothing(http: HttpRequest, error: Exception) -> Response:
    """Answer a client that left while its body was read; nobody reads it."""
    del http, error
    return Response(status_code=400)


def _error(
    http: HttpRequest, problem: Problem, headers: Mapping[str, str] | None = None
) -> Response:
    body = error_body(problem, _api(http), http.state.request_id)
    own = dict(error_headers(problem)) | dict(headers or {})
    return JSONResponse(body, problem.status, headers=own)


def _api(http: HttpRequest) -> Api:
    """Return whose errors a client expects; Anthropic's clients send their version everywhere."""
    if http.url.path.startswith("/api/"):
        return "ollama"
    is_messages = http.url.path.startswith(messages_api.PATH)
    return "anthropic" if is_messages or "anthropic-version" in http.headers else "openai"
