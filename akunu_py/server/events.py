"""Events of a reply, from the backend to a wire format.

A reply is `Accepted`, any number of additions to its message (`values.reply_deltas`), `Logprobs`
before a text if they were asked for, and `Finished`; `Loading`, `Prefilled` and `Decoded` tell of
progress. Where a reply has several choices, `NextChoice` says whose events follow, and `ChoiceEnd`
ends one (`choices`). Reasoning, text and calls come in the order in which the model wrote them, one
call after the other. A call without `CallEnd` was cut and must not be carried out.
"""

from dataclasses import dataclass, field
from typing import Any

from akunu_py.values.reply_deltas import ReplyDelta
from akunu_py.values.types import DecodeStats, FinishReason

_LOOP = (
    "the reply repeated itself and was ended; leave out stop_loops, or send false, to let it go on"
)


@dataclass(frozen=True, slots=True)
class Loading:
    """The model of this name is not in memory; the prompt is read when it is. Only comes first."""

    model: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The prompt is tokenized and fits."""

    num_prompt_tokens: int
    num_cached_tokens: int = 0
    """Tokens of the prompt that need no prefill, as far as is known yet."""
    cache_note: str = ""
    """Why the others need one, in a few words."""


@dataclass(frozen=True, slots=True)
class Prefilled:
    """So many of the prompt's tokens are in the cache."""

    num_tokens: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """A pass that generated tokens; the additions that it makes follow."""

    num_tokens: int
    num_passes: int


@dataclass(frozen=True, slots=True)
class Logprob:
    """A token of an answer, and how likely it was."""

    text: str
    """Its text; bytes that are only a part of a character are U+FFFD."""
    data: bytes
    """Those that it adds to the text that is shown; none if it is a mark, or added to a prompt."""
    logprob: float | None
    """None for the first token of a prompt, which follows nothing."""
    top: tuple["Logprob", ...] = ()
    """The likeliest tokens at its place, the likeliest first."""


@dataclass(frozen=True, slots=True)
class Logprobs:
    """How likely the tokens of the text were that comes next."""

    tokens: tuple[Logprob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Counts and times of a reply; times in seconds."""

    prompt_tokens: int
    completion_tokens: int
    """Generated tokens, reasoning included."""
    cached_tokens: int = 0
    """Tokens of the prompt that were reused from a cache."""
    reasoning_tokens: int = 0
    accepted_predictions: int = 0
    """Generated tokens that were drafted from the client's prediction, or its earlier replies."""
    rejected_predictions: int = 0
    """Tokens drafted from there that the model did not choose."""
    prefill_s: float = 0.0
    decode_s: float = 0.0
    cache_note: str = ""
    """Why the rest of the prompt was prefilled, in a few words."""
    stats: DecodeStats = field(default_factory=DecodeStats)

    @property
    def prefilled_tokens(self) -> int:
        """Tokens of the prompt that no cache had."""
        return self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a reply."""

    reason: FinishReason
    usage: Usage
    stop_text: str | None = None
    """The stop text before which it ended, if one did; None also if it is unknown."""

    @property
    def own_fields(self) -> dict[str, Any]:
        """What an answer says besides, of an end for which the formats have no word."""
        return {} if self.reason != "loop" else {"akunu": {"ended": "loop", "note": _LOOP}}


@dataclass(frozen=True, slots=True)
class NextChoice:
    """The events that follow are those of this choice, until the next one of this kind."""

    index: int


@dataclass(frozen=True, slots=True)
class ChoiceEnd:
    """The end of a choice, while others may still go on."""

    finished: Finished


Progress = Loading | Accepted | Prefilled | Decoded | NextChoice | ChoiceEnd
"""Events that add nothing to the message."""

Addition = ReplyDelta | Logprobs

Event = Progress | Addition | Finished
