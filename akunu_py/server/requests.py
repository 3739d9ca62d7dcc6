"""What the wire formats make of a request, and the backend answers."""

from dataclasses import dataclass

from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.messages import Message, Tool, ToolChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A conversation to answer.

    Attributes:
        model: id of a model that the backend has.
        messages: the conversation, as the client put it.
        config: how to think and to sample, in which form to answer, and when to end.
        tools: the tools that may be called.
        tool_choice: whether and which.
        parallel_tool_calls: whether a reply may hold more than one call.
        continued: whether a last message of the assistant is continued, or a new one begins.
        prediction: a text that the reply will repeat in parts, for drafts; "" for none.

    """

    model: str
    messages: tuple[Message, ...]
    config: GenerationConfig
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    continued: bool = True
    prediction: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """A text, or token ids, to continue; with a suffix, a gap to fill in.

    `suffix` is None where nothing follows. It is only given for a model that can fill in.
    """

    model: str
    prompt: str | tuple[int, ...]
    config: GenerationConfig
    suffix: str | None = None


Request = ChatRequest | CompletionRequest
