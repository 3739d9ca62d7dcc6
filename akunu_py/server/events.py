"""Events of a reply, from the backend to a wire format.

A reply is `Accepted`, any number of additions to its message (`values.reply_deltas`), `Logprobs`
before a text if they were asked for, and `Finished`; `Loading`, `Prefilled` and `Decoded` tell of
progress. Where a reply has several choices, `NextChoice` says whose events follow, and `ChoiceEnd`
ends one (`choices`). Reasoning, text and calls come in the order in which the model wrote them, one
call after the other. A call without `CallEnd` was cut and must not be carried out.
"""

from dataclasses import dataclass, field

from akunu_py.values.reply_deltas import ReplyDelta
from akunu_py.values.types import DecodeStats, FinishReason


@dataclass(frozen=True, slots=True)
class Loading:
    """The model of this name is not in memory; the prompt is read when it is. Only comes first."""

    model: str


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
    """So many of the prompt's tokens are in the cache."""

    num_tokens: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """A pass that generated tokens; the additions that it makes follow.

    Attributes:
        num_tokens: tokens of the reply so far.
        num_passes: passes that they took.

    """

    num_tokens: int
    num_passes: int


@dataclass(frozen=True, slots=True)
class Logprob:
    """A token of an answer, and how likely it was.

    Attributes:
        text: its text; bytes that are only a part of a character are U+FFFD.
        data: its bytes.
        logprob: its log probability, as in `akunu_py.values.types.TokenLogprob`.
        top: the likeliest tokens at its place, the likeliest first.

    """

    text: str
    data: bytes
    logprob: float
    top: tuple["Logprob", ...] = ()


@dataclass(frozen=True, slots=True)
class Logprobs:
    """How likely the tokens of the text were that comes next."""

    tokens: tuple[Logprob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Counts and times of a reply; times in seconds.

    Attributes:
        prompt_tokens: tokens of the prompt.
        cached_tokens: how many of them were reused from a cache.
        completion_tokens: generated tokens, reasoning included.
        reasoning_tokens: how many of them were reasoning.
        accepted_predictions: how many of them were drafted from the client's prediction, or from
            its earlier replies.
        rejected_predictions: tokens drafted from there that the model did not choose.
        cache_note: why the rest of the prompt was prefilled, in a few words.
        stats: drafted and accepted tokens.

    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    accepted_predictions: int = 0
    rejected_predictions: int = 0
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
