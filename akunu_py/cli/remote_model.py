"""What is known of a model on the hub before anything of it is fetched."""

from collections.abc import Iterator, Mapping
from typing import Any

from akunu_py.model_store.hub import ask_hub, free_bytes, is_offline
from akunu_py.model_store.hub_cache import cache_folder
from akunu_py.model_store.names import HubName, choose, find_cached, locate, own_names
from akunu_py.model_store.repository_files import models_of
from akunu_py.system.settings import Settings
from akunu_py.system.shown_text import size_text


def remote_model(name: str, settings: Settings) -> dict[str, Any] | None:
    """Return what the hub says of a model, as JSON can hold it; of a repository all its models.

    None for a model that is on this machine, and where HF_HUB_OFFLINE forbids to ask. Raises
    ConfigError for a name that means nothing there.
    """
    meant = locate(name, settings)
    if not isinstance(meant, HubName) or is_offline() or find_cached(meant) is not None:
        return None
    from akunu_py.models.device import memory_limit  # imports MLX

    models = models_of(ask_hub(meant.repository).sizes)
    named = list(zip(own_names(meant.repository, models), models, strict=True))
    if not models or meant.quantization or meant.file:
        chosen = choose(meant, models, "on the hub")
        named = [(own, model) for own, model in named if model == chosen]
    limit = memory_limit()
    return {
        "repository": meant.repository,
        "models": [
            {
                "name": str(own),
                "file_bytes": model.num_bytes,
                "files": len(model.files),
                "fits": model.num_bytes < limit,
            }
            for own, model in named
        ],
        "memory_limit": limit,
        "free_bytes": free_bytes(cache_folder()),
    }


def remote_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield what `remote_model` returned as text."""
    yield f"{record['repository']} is on the hub, not on this machine"
    for model in record["models"]:
        files = f" in {model['files']} files" * (model["files"] > 1)
        note = "" if model["fits"] else "  (larger than this machine's memory)"
        yield f"{size_text(model['file_bytes']):>9}  {model['name']}{files}{note}"
    yield (
        f"this machine has {size_text(record['memory_limit'])} of memory, and "
        f"{size_text(record['free_bytes'])} left where models are kept; after akunu models pull "
        "NAME, show says what it needs"
    )
