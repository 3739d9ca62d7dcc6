"""Another model for a conversation under way."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from akunu_py.engine.conversation import Conversation
from akunu_py.system.errors import ConfigError, MemoryLimitError

if TYPE_CHECKING:
    from akunu_py.engine.engine import Engine

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
