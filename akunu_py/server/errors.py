"""Errors in the words of each API.

An exception becomes a `Problem`, and a problem the status, body and headers of an API. Clients act
on some of these words. Claude Code compacts a conversation at "prompt is too long: N tokens > M
maximum", Codex at the code "context_length_exceeded". Codex retries 503 and never 429, so a full
queue is 503.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from akunu_py.system.errors import (
    AkunuError,
    ChatTemplateError,
    ConfigError,
    ContextOverflowError,
    EngineStateError,
    MemoryLimitError,
    ModelLoadingError,
    ServerBusyError,
)

_log = logging.getLogger(__name__)

Api = Literal["openai", "anthropic", "ollama"]
"""Whose shape of an error is used; /v1/responses has that of OpenAI's other APIs."""

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    503: "overloaded_error",
}
_MEMORY_RETRY_S = 30
NO_THREAD = "thread_unsupported_request"
"""At this code, Anthropic's SDKs send the whole conversation."""


class RequestError(AkunuError):
    """A request that is refused before the backend sees it."""

    def __init__(self, message: str, *, status: int = 400, param: str = "", code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        """The field at fault, as the client wrote it; "" for none."""
        self.code = code
        """OpenAI's word for the mistake; "" for none."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What went wrong, before an API puts it into its words."""

    status: int
    message: str
    param: str = ""
    code: str = ""
    retry_after_s: float | None = None
    """When to ask again; None if that does not help."""
    overflow: tuple[int, int] | None = None
    """Tokens of the prompt and of the context, where the prompt is too long."""


def problem_of(error: Exception, *, prompt_field: str = "") -> Problem:
    """Return the message for an exception; one that akunu does not know is logged, not quoted.

    `prompt_field` is the client's name of what is too long for the context.
    """
    match error:
        case RequestError():
            return Problem(error.status, error.message, error.param, error.code)
        case ContextOverflowError():
            known = error.num_tokens is not None and error.context is not None
            overflow = (error.num_tokens or 0, error.context or 0) if known else None
            code = "context_length_exceeded"
            return Problem(400, error.message, prompt_field, code, overflow=overflow)
        case ModelLoadingError():
            return Problem(503, error.message, "", "model_loading", error.retry_after_s)
        case ServerBusyError():
            return Problem(503, error.message, "", "server_busy", error.retry_after_s)
        case MemoryLimitError():
            return Problem(503, error.message, "", "out_of_memory", _MEMORY_RETRY_S)
        case EngineStateError():
            return Problem(503, error.message, "", "server_not_ready", _MEMORY_RETRY_S)
        case ConfigError() | ChatTemplateError():
            return Problem(400, error.message)
        case AkunuError():
            _log.error("a reply failed: %s", error.message)
            return Problem(500, error.message, "", "server_error")
    _log.error("a reply failed because of a mistake in akunu", exc_info=error)
    message = "akunu failed; its log says where. Report this as a bug"
    return Problem(500, message, "", "server_error")


def error_body(problem: Problem, api: Api, request_id: str) -> dict[str, Any]:
    """Return the body of an error."""
    if api == "anthropic":
        return anthropic_error(problem, request_id)
    return ollama_error(problem) if api == "ollama" else openai_error(problem)


def openai_error(problem: Problem) -> dict[str, Any]:
    """Return an error as the chat completions, completions and responses APIs have it."""
    return {
        "error": {
            "message": openai_message(problem),
            "type": "invalid_request_error" if problem.status < 500 else "server_error",
            "param": problem.param or None,
            "code": problem.code or None,
        }
    }


def openai_message(problem: Problem) -> str:
    """Return the text of an error, in OpenAI's words where clients look for them."""
    if problem.overflow is None:
        return problem.message
    tokens, context = problem.overflow
    return (
        f"This model's maximum context length is {context} tokens. However, your messages resulted "
        f"in {tokens} tokens. Please reduce the length of the messages."
    )


def anthropic_error(problem: Problem, request_id: str) -> dict[str, Any]:
    """Return an error as the messages API has it."""
    message = problem.message
    if problem.overflow is not None:
        tokens, context = problem.overflow
        message = f"prompt is too long: {tokens} tokens > {context} maximum"
    default = "invalid_request_error" if problem.status < 500 else "api_error"
    error: dict[str, Any] = {
        "type": _ANTHROPIC_TYPES.get(problem.status, default), "message": message,
    }  # fmt: skip
    if problem.code == NO_THREAD:
        error["details"] = {"error_code": problem.code, "unsupported": [problem.param]}
    return {"type": "error", "error": error, "request_id": request_id}


def ollama_error(problem: Problem) -> dict[str, Any]:
    """Return an error as Ollama has it."""
    return {"error": problem.message}


def error_headers(problem: Problem) -> Mapping[str, str]:
    """Return the headers of an error."""
    if problem.status == 401:
        return {"www-authenticate": "Bearer"}
    if problem.retry_after_s is None:
        return {}
    return {"retry-after": str(max(1, math.ceil(problem.retry_after_s)))}


_ENDINGS = (Exception, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)
"""Everything that Python itself raises."""


@contextlib.contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raise a RuntimeError in place of a panic of tokenizers or llguidance (PyO3's)."""
    try:
        yield
    except _ENDINGS:
        raise
    except BaseException as panic:
        raise RuntimeError(f"a library failed: {panic}") from panic
