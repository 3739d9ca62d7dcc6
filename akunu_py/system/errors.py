"""All errors that akunu raises for causes outside its own code.

    AkunuError
      ModelFormatError                a file is damaged or malformed
        UnsupportedQuantizationError  a tensor type akunu cannot keep or expand
        UnsupportedArchitectureError  a model family akunu has no class for
        ChatTemplateError             a chat template fails, or refuses a conversation
      ConfigError                     an option or argument out of its range
        MemoryLimitError              a model that does not fit into this machine's memory
        ConstraintError               a form of the reply that cannot be compiled or met
      HubError                        a hub or package index fails
      ContextOverflowError            the prompt leaves no room in the context
      EngineStateError                the engine is closed, busy or forked
      ServerBusyError                 more replies wait than the server has room for
        ModelLoadingError             a model is not in memory yet
      RollbackError                   a cache cannot drop rows
      ContractError                   a drafter or target broke its protocol

Messages say what to do. Errors of libraries below are turned into these at a room's edge.
"""

from collections.abc import Sequence

from akunu_py.system.shown_text import one_line

_LONGEST = 2000


class AkunuError(Exception):
    """Base of all errors a user of akunu may want to catch.

    A message may contain text of a model file, such as errors of its chat template. So it is made
    one harmless line: nothing in it can look like a line of akunu's own or control a terminal. What
    is far too long loses its middle. `choices` are alternatives, shown below it, one per line.
    """

    def __init__(self, message: str, *, choices: Sequence[str] = ()) -> None:
        self.message = _shortened(one_line(message))
        self.choices = tuple(map(one_line, choices))
        super().__init__(self.message)

    def __str__(self) -> str:
        return "\n  ".join((self.message, *self.choices))


def _shortened(text: str) -> str:
    """Return a text of at most _LONGEST characters; the end, which says what to do, stays."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST * 3 // 4]} ... {text[-_LONGEST // 5 :]}"


class ModelFormatError(AkunuError):
    """A model file is malformed, truncated or not a model."""


class UnsupportedQuantizationError(ModelFormatError):
    """A tensor has a type that cannot be loaded."""


class UnsupportedArchitectureError(ModelFormatError):
    """The model family is not known."""


class ChatTemplateError(ModelFormatError):
    """A chat template fails, or refuses a conversation."""

    def __init__(self, message: str) -> None:
        # As a choice, since a client of the server does not have it.
        super().__init__(message, choices=("use --raw to give the prompt yourself",))


class ConfigError(AkunuError, ValueError):
    """An option or an argument is out of its range."""


class MemoryLimitError(ConfigError):
    """A model does not fit into this machine's memory.

    With `fits_alone` it would fit if nothing else were loaded.
    """

    def __init__(self, message: str, *, fits_alone: bool = False) -> None:
        super().__init__(message)
        self.fits_alone = fits_alone


class ConstraintError(ConfigError):
    """A constraint is malformed, unsatisfiable or too complex, or allows no further token."""


class HubError(AkunuError):
    """A hub or package index does not answer, or its files cannot be stored here."""


class ContextOverflowError(AkunuError):
    """The prompt does not fit into the context.

    `num_tokens` are those of the prompt, or of as much of it as was counted; None if unknown.
    """

    def __init__(
        self, message: str, *, num_tokens: int | None = None, context: int | None = None
    ) -> None:
        super().__init__(message)
        self.num_tokens = num_tokens
        self.context = context


class EngineStateError(AkunuError, RuntimeError):
    """The engine cannot serve this call: closed, busy in another thread, or forked."""


class ServerBusyError(AkunuError):
    """More replies wait than the server has room for; a try may succeed after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ModelLoadingError(ServerBusyError):
    """The model of a request is not in memory yet."""


class RollbackError(AkunuError):
    """A cache could not be rolled back to the accepted tokens."""


class ContractError(AkunuError):
    """A drafter or target did something its protocol forbids."""
