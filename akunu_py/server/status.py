"""/health, /metrics and /props, and the answer to clients that ask whether a server is there."""

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from akunu_py import __version__
from akunu_py.server.generation_fields import declared_fields
from akunu_py.server.service import Service

_RETRY_S = "5"


async def health(http: HttpRequest) -> Response:
    """Answer `GET /health`: 200 if requests are answered, else 503."""
    service: Service = http.app.state.service
    state = service.backend.health()
    body = {
        "status": state.state,
        "running": state.running,
        "waiting": state.waiting,
        "places": state.places,
        "loading": state.loading or None,
        "loaded": [model.id for model in service.backend.models() if model.loaded],
    }
    if state.state == "ok":
        return JSONResponse(body)
    return JSONResponse(body, 503, headers={"retry-after": _RETRY_S})


async def metrics(http: HttpRequest) -> Response:
    """Answer `GET /metrics`."""
    service: Service = http.app.state.service
    text = service.metrics.text(service.backend.health(), service.backend.models())
    return Response(text, media_type="text/plain; version=0.0.4")


async def props(http: HttpRequest) -> Response:
    """Answer `GET /props` with the fields of llama.cpp that say something here."""
    service: Service = http.app.state.service
    model = service.model(http.query_params.get("model"))
    defaults = service.defaults_of(model)
    turns = model.takes_turns() if model.loaded else None
    return JSONResponse(
        {
            "default_generation_settings": {
                "n_ctx": model.context,
                "params": {
                    "temperature": defaults.temperature,
                    "top_k": defaults.top_k,
                    "top_p": defaults.top_p,
                    "min_p": defaults.min_p,
                    "n_predict": -1 if defaults.max_tokens is None else defaults.max_tokens,
                },
            },
            "n_ctx_train": model.trained,
            "total_slots": service.backend.health().places,
            # None until two replies were made at once.
            "shares_passes": None if turns is None else not turns,
            "takes_turns_since": turns or None,
            # A name: clients have no business with folders of this machine.
            "model_path": model.id,
            "model_alias": model.id,
            "chat_template": model.template,
            # None until the model was loaded: only its template tells.
            "thinking": sorted(model.heeds) if model.loaded else None,
            # akunu's own, for the page.
            "options": declared_fields("completions", defaults),
            "modalities": {"vision": False, "audio": False},
            "build_info": f"akunu {__version__}",
        }
    )


async def version(http: HttpRequest) -> Response:
    """Answer `GET /version`, as vLLM does."""
    del http
    return JSONResponse({"version": __version__})


async def present(http: HttpRequest) -> Response:
    """Answer `GET /api/hello`, with which clients look for a server."""
    del http
    return Response(media_type="text/plain")
