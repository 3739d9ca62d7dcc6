"""The models of this machine to choose from in a chat, with their sizes and what fits."""

from pathlib import Path

from akunu_py.cli.chat.tables import tables
from akunu_py.model_store.inventory import ListedModel, inventory
from akunu_py.model_store.names import friendly_name
from akunu_py.system.settings import load_settings
from akunu_py.system.shown_text import one_line, size_text

Option = tuple[str, str]
"""A model's path, and the row that shows it."""


def local_models(current: Path) -> list[Option]:
    """Return the models that are whole on this machine, the one in use first.

    Raises ConfigError where the hub's cache or the aliases cannot be read.
    """
    from akunu_py.models.requirements import memory_limit  # imports MLX

    limit = memory_limit()
    here = [model for model in inventory(load_settings()) if model.path is not None]
    # An alias comes behind the model that it stands for.
    known = {_place(model): model for model in reversed(here)}
    size = current.stat().st_size if current.is_file() else None
    used = ListedModel(friendly_name(current), "", current, size, "")
    used = known.pop(_place(used), used)
    models = [used, *reversed(known.values())]
    rows = []
    for model in models:
        large = model.num_bytes is not None and model.num_bytes >= limit
        notes = [model.quantization, "in use" * (model is used), "larger than the memory" * large]
        shown = "" if model.num_bytes is None else size_text(model.num_bytes)
        rows.append((one_line(model.name), shown, ", ".join(filter(None, notes))))
    texts = tables({"": rows}, None).splitlines()
    return [(str(_place(model)), text.strip()) for model, text in zip(models, texts, strict=True)]


def _place(model: ListedModel) -> Path:
    assert model.path is not None  # noqa: S101 - others are left out
    return model.path.resolve()
