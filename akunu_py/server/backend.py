"""Requests as the wire formats make them, and what the HTTP layer asks of the worker."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self

from akunu_py.protocols import Tokenizer
from akunu_py.server.events import Event
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.messages import Message, Tool, ToolChoice
from akunu_py.values.recommended import NO_RECOMMENDATION, Recommended


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRequest:
    """Texts to embed; see `Engine.embed` for the fields."""

    model: str
    texts: tuple[str | tuple[int, ...], ...]
    dimensions: int | None = None
    prompt_name: str | None = None
    truncate: bool = False


Request = ChatRequest | CompletionRequest | EmbeddingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFacts:
    """What a model's files hold; 0 and "" for what is not known."""

    storage: Literal["gguf", "safetensors"] = "gguf"
    num_bytes: int = 0
    architecture: str = ""
    """`general.architecture`, or `model_type` of an MLX folder."""
    parameters: int = 0
    quantization: str = ""
    """From the file's name or the folder's config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model that a request may name."""

    id: str
    """The name in requests and answers, one word."""
    name: str
    """The name for people."""
    names: frozenset[str] = frozenset()
    """What requests may call it, too: the names under which it was fetched."""
    context: int
    created: int = 0
    loaded: bool = True
    replies: bool = True
    """Whether it was made for replies, not for embeddings alone."""
    embeds: bool = False
    """Whether it makes embeddings."""
    thinks: bool = False
    heeds: frozenset[str] = frozenset({"thinking", "effort"})
    """The options about thinking that its template has a switch for; all where that is not known
    yet."""
    holds_grammars: bool = True
    """Whether calls of custom tools follow their grammars."""
    unwritten: Callable[[Sequence[Tool]], Sequence[str]] = lambda _: ()
    """Returns the parts of tools' schemas that calls cannot follow, since its template cannot write
    them; none where that is not known yet."""
    takes_turns: Callable[[], str | None] = lambda: None
    """Returns why replies that are made at once take turns; an empty text where they share passes,
    None where that is not known: a model tries it with its first two replies."""
    fills_in: bool = False
    """Whether its vocabulary has the tokens to fill a gap."""
    template: str = ""
    """The source of its chat template; "" for none."""
    trained: int | None = None
    """The most that `--context` can make of it; None if that is not known."""
    stored: StoredFacts = StoredFacts()
    recommended: Recommended = NO_RECOMMENDATION
    """How its makers say that replies should be sampled."""
    idle_left_s: float | None = None
    """In how many seconds it leaves the memory if nobody asks for it; None for never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state of the worker."""

    state: Literal["ok", "loading", "dead"] = "ok"
    """While it is "loading", no request can be answered yet."""
    running: int = 0
    waiting: int = 0
    places: int = 1
    """Replies that can be under way at once."""
    cache_bytes: int = 0
    loading: str = ""
    """Id of the model that is being loaded; "" for none."""
    loads: int = 0
    evictions: int = 0
    """How often a model left the memory for another."""
    unloads: int = 0
    """How often a model left it because nobody used it."""


class ServedReply(Protocol):
    """The events of one reply, which end with `Finished` or an exception."""

    def __aiter__(self) -> Self:
        """Return the reply itself."""

    async def __anext__(self) -> Event:
        """Return the next event; a reader that stops waiting for it loses none."""

    def cancel(self) -> None:
        """End the reply within one step, in whatever phase; a second call does nothing."""


class Backend(Protocol):
    """Makes replies for many clients; called from the thread of the event loop alone."""

    def submit(self, request: Request, client: str) -> ServedReply:
        """Queue a request; returns at once.

        `client` tells clients apart, for fairness and for what must not pass between them. Raises
        ServerBusyError if there is no place; so may the first event, and any AkunuError for a
        request that cannot be answered.
        """

    async def load(self, model: str) -> None:
        """Load the model of this id if it is not in memory; raises as `submit` does."""

    def unload(self, model: str) -> None:
        """Take a model out of memory as soon as no reply is under way.

        Raises ConfigError for one that stays.
        """

    async def chat_ids(self, request: ChatRequest) -> Sequence[int]:
        """Return the token ids of a conversation's prompt."""

    async def tokenizer(self, model: str) -> Tokenizer:
        """Return the tokenizer of a model, which is loaded for it; raises as `submit` does."""

    def models(self) -> Sequence[ServedModel]:
        """Return the models that may be named, the default first."""

    def health(self) -> Health:
        """Return the state of the worker, without waiting for it."""
