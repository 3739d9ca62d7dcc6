"""Events of a reply, from the backend to a wire format.

A reply is `Accepted`, any number of additions, and `Finished`. Thoughts, text and calls come in the
order in which the model wrote them. A call is `CallStart`, its arguments piece by piece, and
`CallEnd`; a call without `CallEnd` was cut and must not be carried out.
"""

from dataclasses import dataclass, field
from typing import Literal

from akunu_py.decode_stats import DecodeStats

FinishReason = Literal["stop", "length", "loop", "cancelled", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The prompt is tokenized and fits.

    Attributes:
        num_prompt_tokens: tokens of the prompt.
        num_cached_tokens: how many of them need no prefill, as far as is known yet.
        cache_note: why the others do, in a few words.

    """

    num_prompt_tokens: int
    num_cached_tokens: int = 0
    cache_note: str = ""


@dataclass(frozen=True, slots=True)
class Prefilled:
    """So many of the prompt's tokens are in the cache; a sign of life."""

    num_tokens: int


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More text of the thoughts, without their markers."""

    text: str


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """The beginning of tool call `index`, counted from 0; results refer to it by `id`."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More of the arguments of call `index`; the texts of a call together are a JSON object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """Call `index` is complete."""

    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Counts and times of a reply; times in seconds.

    Attributes:
        prompt_tokens: tokens of the prompt.
        cached_tokens: how many of them were reused from a cache.
        completion_tokens: generated tokens, thoughts included.
        reasoning_tokens: how many of them were thoughts.
        cache_note: why the rest of the prompt was prefilled, in a few words.
        stats: drafted and accepted tokens.

    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    cache_note: str = ""
    stats: DecodeStats = field(default_factory=DecodeStats)

    @property
    def prefilled_tokens(self) -> int:
        """Tokens of the prompt that no cache had."""
        return self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a reply.

    Attributes:
        reason: why it ended.
        usage: its counts.
        stop_text: the stop text before which it ended, if one did; None also if it is unknown.

    """

    reason: FinishReason
    usage: Usage
    stop_text: str | None = None


Delta = ReasoningDelta | ContentDelta | CallStart | ArgumentsDelta | CallEnd
"""An addition to the message of a reply."""

Event = Accepted | Prefilled | Delta | Finished
