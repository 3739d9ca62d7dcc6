"""`akunu generate --trace`: a reply step by step, for reading."""

import json
import sys
from collections.abc import Callable, Iterable
from typing import Self

from akunu_py.cli.terminal import printable
from akunu_py.values.decode_stats import DraftedToken, StepDetail
from akunu_py.values.types import StreamEvent

_SHOWN_TEXT = 72
"""Characters of the text so far that a step shows, from its end."""

_MARKS = {True: "\N{CHECK MARK}", False: "\N{BALLOT X}", None: "\N{MIDDLE DOT}"}
_ORIGINS = {"target": "from the target's distribution", "residual": "from the residual"}

Decode = Callable[[Iterable[int]], str]


class StepTrace:
    """Prints the steps of one reply; `decode` gives the text of ids, control tokens included."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._number = 0
        self._text = ""

    def feed(self, event: StreamEvent) -> None:
        """Print the step of an event; nothing for an event without one."""
        self._text += event.text
        # A detail is made each time it is asked for.
        detail = None if event.step is None else event.step.detail
        if detail is None:
            return
        self._number += 1
        lines = (self._head(detail), *self._tokens(detail))
        # The text is quoted already; a source is a plug-in's own word.
        sys.stdout.write(printable("\n".join((*lines, self._so_far(), ""))))
        sys.stdout.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: every step ends with a line."""

    def _head(self, detail: StepDetail) -> str:
        parts = [f"step {self._number}", f"position {detail.position}"]
        if detail.drafted:
            parts.append(f"{len(detail.drafted)} drafted by {detail.source or 'a drafter'}")
            if detail.match_length:
                parts.append(f"context of {detail.match_length}")
        else:
            parts.append("nothing drafted")
        if detail.entropy is not None:
            parts.append(f"H {detail.entropy:.3f}")
        if detail.gamma is not None:
            parts.append(f"gamma {detail.gamma}")
        return " \N{MIDDLE DOT} ".join(parts)

    def _tokens(self, detail: StepDetail) -> list[str]:
        chain = all(drafted.parent == place - 1 for place, drafted in enumerate(detail.drafted))
        lines = [
            f"  {_MARKS[drafted.accepted]} {self._quoted(drafted.token)}"
            + ("" if chain else f"  after {drafted.parent}" if drafted.parent >= 0 else "  first")
            + (f"  by {drafted.source}" if drafted.source else "")
            + "".join(f"  {name} {value:.4g}" for name, value in _numbers(drafted))
            for drafted in detail.drafted
        ]
        accepted = f"{len(detail.accepted)} accepted, " if detail.drafted else ""
        return [
            *lines,
            f"  {accepted}{detail.kind} {self._quoted(detail.token)}: {_ORIGINS[detail.origin]}",
        ]

    def _quoted(self, token: int) -> str:
        return f"{_quote(self._decode((token,)))} ({token})"

    def _so_far(self) -> str:
        before = "\N{HORIZONTAL ELLIPSIS}" if len(self._text) > _SHOWN_TEXT else ""
        return f"  text: {before}{_quote(self._text[-_SHOWN_TEXT:])}"


def _numbers(drafted: DraftedToken) -> list[tuple[str, float]]:
    named = (
        ("confidence", drafted.confidence),
        ("p", drafted.p),
        ("q", drafted.q),
        ("p/q", drafted.ratio),
        ("uniform", drafted.uniform),
    )
    return [(name, value) for name, value in named if value is not None]


def _quote(text: str) -> str:
    """Return a text in quotation marks, on one line, without a control character."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(
        character if character.isprintable() else f"\\u{ord(character):04x}" for character in quoted
    )
