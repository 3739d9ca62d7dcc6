"""Another model for a conversation under way, and those of this machine to choose from."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from akunu_py.cli.chat.tables import tables
from akunu_py.engine.conversation import Conversation
from akunu_py.model_store.inventory import ListedModel, inventory
from akunu_py.model_store.names import friendly_name
from akunu_py.system.errors import ConfigError, MemoryLimitError
from akunu_py.system.settings import load_settings
from akunu_py.system.shown_text import one_line, size_text

if TYPE_CHECKING:
    from akunu_py.engine.engine import Engine


Option = tuple[str, str]
"""A model's path, and the row that shows it."""


def local_models(current: Path) -> list[Option]:
    """Return the models that are whole on this machine, the one in use first.

    Raises ConfigError where the hub's cache or the aliases cannot be read.
    """
    from akunu_py.models.device import memory_limit  # imports MLX

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


Load = Callable[[str | None], "Engine"]
"""Opens the model with this name; None is the model that ships with akunu."""


def change_model(
    conversation: Conversation, load: Load, name: str | None, note: Callable[[str], None]
) -> None:
    """Let the model of a name go on with a conversation.

    The model so far is kept until the other one is ready, unless memory holds one of them only;
    then it is closed first, and loaded again where the other one cannot be had. Raises ConfigError
    for a model without a chat template, and what `load` does.
    """
    try:
        engine = _load_for_chat(load, name)
    except MemoryLimitError as error:
        if not error.fits_alone:
            raise
        engine = _load_instead(conversation, load, name, note)
    conversation.exchange(engine)


def _load_instead(
    conversation: Conversation, load: Load, name: str | None, note: Callable[[str], None]
) -> "Engine":
    before = conversation.engine
    own = before.description
    note(f"both do not fit into memory: {own.name} is closed first")
    before.close()
    try:
        return _load_for_chat(load, name)
    except BaseException:
        note(f"{own.name} is loaded again")
        conversation.exchange(load(str(own.path)))
        raise


def _load_for_chat(load: Load, name: str | None) -> "Engine":
    engine = load(name)
    if not engine.tokenizer.has_chat_template:
        engine.close()
        raise ConfigError(f"{name} has no chat template; the model stays as it is")
    return engine
