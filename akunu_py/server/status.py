"""What a server tells of itself: /v1/models, /health, /metrics and /props.

OpenAI's and Anthropic's clients look for different fields of the models in `data`. Codex reads
`models`, a catalog of its own. Claude Code shows only models whose ids begin with "claude", so each
model is listed under such a name, too.
"""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from akunu_py import __version__
from akunu_py.server.backend import ServedModel
from akunu_py.server.generation_fields import declared_fields
from akunu_py.server.service import CLAUDE_PREFIX, Service

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
            "stored": asdict(model.stored),
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


_INSTRUCTIONS = (
    "You are a coding agent in a terminal. Read files before you change them, change them with "
    "apply_patch, and run commands to check your work. Go on until the task is done, then say in a "
    "few words what you changed."
)
"""What Codex tells a model of this catalog; it adds no instructions of its own to an empty text."""


async def model_list(http: HttpRequest) -> Response:
    """Answer `GET /v1/models`."""
    service: Service = http.app.state.service
    models = service.backend.models()
    entries = [_entry(model, model.id) for model in models]
    # Where agents choose a model.
    models = [model for model in models if model.replies]
    entries += [_entry(model, CLAUDE_PREFIX + model.id) for model in models]
    return JSONResponse(
        {
            "object": "list",
            "data": entries,
            # All on one page, whatever part Anthropic's clients ask for.
            "has_more": False,
            "first_id": entries[0]["id"] if entries else None,
            "last_id": entries[-1]["id"] if entries else None,
            "models": [_catalog_entry(model, place) for place, model in enumerate(models)],
        }
    )


async def one_model(http: HttpRequest) -> Response:
    """Answer `GET /v1/models/NAME`."""
    service: Service = http.app.state.service
    name = http.path_params["name"]
    return JSONResponse(_entry(service.model(name), name))


def _entry(model: ServedModel, id_: str) -> dict[str, Any]:
    return {
        "id": id_,
        "object": "model",
        "created": model.created,
        "owned_by": "akunu",
        "type": "model",
        "display_name": model.name,
        "created_at": datetime.fromtimestamp(model.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": model.context,
        "max_tokens": model.context,
        # Names of the same in vLLM and in LM Studio.
        "max_model_len": model.context,
        "context_length": model.context,
    }


def _catalog_entry(model: ServedModel, priority: int) -> dict[str, Any]:
    levels = [{"effort": "medium", "description": "as much as the model does"}]
    return {
        "slug": model.id,
        "display_name": model.name,
        "description": None,
        "context_window": model.context,
        "max_context_window": model.context,
        "default_reasoning_level": "medium" if model.thinks else None,
        "supported_reasoning_levels": levels if model.thinks else [],
        "supports_reasoning_summaries": model.thinks,
        "shell_type": "default",
        "visibility": "list",
        "supported_in_api": True,
        "priority": priority,
        "truncation_policy": {"mode": "tokens", "limit": 10_000},
        "input_modalities": ["text"],
        "base_instructions": _INSTRUCTIONS,
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": "freeform",
        "supports_parallel_tool_calls": True,
        "experimental_supported_tools": [],
    }
