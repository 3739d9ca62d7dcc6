"""What the wire formats make of a request, and the backend answers."""

from dataclasses import dataclass

from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.messages import Message, Tool, ToolChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A conversation to answer."""

    model: str
    """Id of a model that the backend has."""
    messages: tuple[Message, ...]
    config: GenerationConfig
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    continued: bool = True
    """Whether a last message of the assistant is continued, or a new one begins."""
    prediction: str = ""
    """A text that the reply will repeat in parts, for drafts; "" for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """A text, or token ids, to continue; with a suffix, a gap to fill in.

    `suffix` is None where nothing follows. It is only given for a model that can fill in. With
    `echo` the reply begins with the prompt, and its tokens have log probabilities where those of
    the reply do. With `reads_only` it ends there.
    """

    model: str
    prompt: str | tuple[int, ...]
    config: GenerationConfig
    suffix: str | None = None
    echo: bool = False
    reads_only: bool = False


Request = ChatRequest | CompletionRequest
