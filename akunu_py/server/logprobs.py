"""Log probabilities of tokens, as OpenAI's APIs write them."""

from codecs import getincrementaldecoder
from collections.abc import Sequence
from typing import Any

from akunu_py.server.errors import RequestError
from akunu_py.server.events import Logprob

MOST_TOP = 20
"""Likeliest tokens that a request may ask for at each place."""

_LEAST = -9999.0
"""What OpenAI's API writes for a probability of 0: JSON has no -inf."""


def logprobs_option(wanted: bool | None, top: int | None, *, field: str) -> int | None:
    """Return the option `logprobs` for fields of a request; None for no log probabilities.

    Raises RequestError for a number out of range, or one without the wish.
    """
    if top is not None and not 0 <= top <= MOST_TOP:
        raise RequestError(f"{field} is {top}; give 0 to {MOST_TOP}", param=field)
    if top and not wanted:
        raise RequestError(f"{field} needs logprobs; ask for them, too", param=field)
    return (top or 0) if wanted else None


def logprob_fields(tokens: Sequence[Logprob]) -> list[dict[str, Any]]:
    """Return tokens as chat completions and responses have them."""
    return [
        {**_fields(one), "top_logprobs": [_fields(other) for other in one.top]} for one in tokens
    ]


class CompletionLogprobs:
    """The tokens of one text as completions have them, part after part."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._length = 0  # characters that are complete

    @staticmethod
    def none() -> dict[str, list[Any]]:
        """Return the fields of no tokens."""
        return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}

    def fields(self, tokens: Sequence[Logprob]) -> dict[str, list[Any]]:
        """Return the next tokens; the offset of one within a character is that character's."""
        offsets = []
        for one in tokens:
            offsets.append(self._length)
            self._length += len(self._decoder.decode(one.data))
        return {
            "tokens": [_spelled(one) for one in tokens],
            "token_logprobs": [_value(one) for one in tokens],
            # The chosen token is always among them.
            "top_logprobs": [
                None
                if one.logprob is None
                else {_spelled(other): _value(other) for other in (*one.top, one)}
                for one in tokens
            ],
            "text_offset": offsets,
        }


def _spelled(one: Logprob) -> str:
    r"""Return a token's text; a part of a character is spelled "bytes:\xf0\x9f", as OpenAI does."""
    try:
        return one.data.decode() or one.text
    except UnicodeDecodeError:
        return "bytes:" + one.data.decode(errors="backslashreplace")


def _fields(one: Logprob) -> dict[str, Any]:
    return {"token": one.text, "bytes": list(one.data), "logprob": _value(one)}


def _value(one: Logprob) -> float | None:
    return None if one.logprob is None else max(one.logprob, _LEAST)
