"""Steps of a trace as text, for reading."""

import json
from collections.abc import Callable, Iterable, Iterator

from msgspec import UNSET

from akunu_lab.replay.trace_steps import TracedToken, TraceStep

_MARKS = {True: "\N{CHECK MARK}", False: "\N{BALLOT X}", UNSET: "\N{MIDDLE DOT}"}
_ORIGINS = {"target": "from the target's distribution", "residual": "from the residual"}

Decode = Callable[[Iterable[int]], str]


def step_lines(steps: Iterable[TraceStep], decode: Decode) -> Iterator[str]:
    """Yield the lines of steps; `decode` gives the text of ids, control tokens included."""

    def quoted(token: int) -> str:
        return f"{_quote(decode((token,)))} ({token})"

    for number, step in enumerate(steps, start=1):
        yield " \N{MIDDLE DOT} ".join((f"step {number}", *_head(step)))
        chain = all(drafted.parent == place - 1 for place, drafted in enumerate(step.drafted))
        for drafted in step.drafted:
            place = (
                "" if chain else f"  after {drafted.parent}" if drafted.parent >= 0 else "  first"
            )
            by = "" if drafted.source is UNSET else f"  by {_plain(drafted.source)}"
            numbers = "".join(f"  {name} {value:.4g}" for name, value in _numbers(drafted))
            yield f"  {_MARKS[drafted.accepted]} {quoted(drafted.token)}{place}{by}{numbers}"
        accepted = f"{step.accepted} accepted, " if step.drafted else ""
        yield f"  {accepted}{step.kind} {quoted(step.token)}: {_ORIGINS[step.origin]}"


def _head(step: TraceStep) -> Iterator[str]:
    yield f"position {step.position}"
    if not step.drafted:
        yield "nothing drafted"
    else:
        yield f"{len(step.drafted)} drafted by {_plain(step.source) or 'a drafter'}"
        if step.match_length:
            yield f"context of {step.match_length}"
    if step.entropy is not UNSET:
        yield f"H {step.entropy:.3f}"
    if step.gamma is not UNSET:
        yield f"gamma {step.gamma}"


def _numbers(drafted: TracedToken) -> Iterator[tuple[str, float]]:
    p, q = drafted.p, drafted.q
    ratio = p / q if p is not UNSET and q is not UNSET and q else UNSET
    named = (
        ("confidence", drafted.confidence), ("p", p), ("q", q), ("p/q", ratio),
        ("uniform", drafted.uniform),
    )  # fmt: skip
    return ((name, value) for name, value in named if value is not UNSET)


def _plain(name: str) -> str:
    """Return a name from a file, quoted where it has more than printable characters."""
    return name if name.isprintable() else _quote(name)


def _quote(text: str) -> str:
    """Return a text in quotation marks, on one line, without a control character."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(
        character if character.isprintable() else f"\\u{ord(character):04x}" for character in quoted
    )
