"""Traces: recorded prompts and outputs, one JSON object a line, read strictly.

The format is in lab/docs/traces.md. A malformed line is reported with its field and not used;
reading continues if the caller takes reports.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from akunu_lab.replay.trace_steps import TraceStep, check_steps, wrong
from akunu_lab.study.values import Count
from akunu_py.api import ConfigError, Failure, Row

Text = Annotated[str, Meta(min_length=1)]
Ids = Annotated[tuple[Count, ...], Meta(min_length=1)]


class TraceItem(Row, frozen=True):
    """One reply: `prompt` is the conversation so far, `output` the reply.

    Items of one `session` (by default the id) are adjacent and in the order of their `turn`.
    `prompt_ids` and `token_ids` are prompt and output in ids of the tokenizer with this
    `vocabulary` (`akunu_py.drafting.memory.vocabulary_fingerprint`); empty where not given. A
    replay ignores `steps`, and the other fields, which name the origin of an item.
    """

    id: Text
    category: Text
    prompt: Text
    output: Text
    session: Text = ""
    turn: Count = 0
    prompt_ids: Ids = ()
    token_ids: Ids = ()
    steps: tuple[TraceStep, ...] = ()
    vocabulary: str = ""
    subcategory: str = ""
    model: str = ""
    decoding: str = ""
    source_repo: str = ""
    license: str = ""

    @property
    def half(self) -> int:
        """The half of the items that this one belongs to, 0 or 1, by a hash of the session."""
        return half_of(self.session)


def half_of(session: str) -> int:
    """Return the parity of a session's SHA-256 as a number: 0 tunes, 1 is reported."""
    return hashlib.sha256(session.encode()).digest()[-1] & 1


def read_trace(path: Path, failures: list[Failure] | None = None) -> list[TraceItem]:
    """Read a trace file; malformed lines go to `failures`, while the others are read.

    Raises ConfigError, which names file, line and field, for the first malformed line if there are
    no `failures`, and for a file that cannot be read or has no item.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    return parse_trace(data, str(path), failures)


def parse_trace(data: bytes, name: str, failures: list[Failure] | None = None) -> list[TraceItem]:
    """Read the lines of a trace, which errors call `name`. Otherwise as `read_trace`."""
    items: list[TraceItem] = []
    lines: dict[str, int] = {}
    sessions: set[str] = set()
    failed: list[Failure] = []
    # Not splitlines: JSON allows U+2028 inside a string.
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            item = read_item(line)
            _check_id(item, lines)
            if item.session in sessions:
                _check_order(items[-1], item)
        except ConfigError as error:
            where = f"{name}, line {number}"
            if failures is None:
                of_field = str(error).startswith("field ")
                raise ConfigError(f"{where}{', ' if of_field else ': '}{error}") from None
            failed.append(Failure(where, str(error)))
            continue
        lines[item.id] = number
        sessions.add(item.session)
        items.append(item)
    if not items:
        if not failed:
            raise ConfigError(f"{name} has no items; give one JSON object a line")
        first = failed[0]
        raise ConfigError(f"{name} has no item that can be used; {first.item}: {first.error}")
    if failures is not None:
        failures += failed
    return items


def read_item(line: bytes) -> TraceItem:
    """Return the item of a line; raise ConfigError, which names a malformed field."""
    item = TraceItem.from_line(line)
    record: dict[str, Any] = json.loads(line)
    for field, value in record.items():
        if isinstance(value, str):
            _check_text(field, value)
    if "turn" in record and "session" not in record:
        raise wrong("turn", "needs a session to be a turn of")
    if "steps" in record:
        check_steps(item.steps, item.prompt_ids, item.token_ids)
    return replace(item, session=item.session or item.id)


def _check_text(field: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise wrong(
            field, f"half a surrogate pair at character {error.start}, which no tokenizer takes"
        ) from None


def _check_id(item: TraceItem, lines: Mapping[str, int]) -> None:
    if item.id in lines:
        raise wrong("id", f"{item.id!r} is the id of line {lines[item.id]} already")


def _check_order(last: TraceItem, item: TraceItem) -> None:
    """Check that a session's items are adjacent and in the order of their turns."""
    if last.session != item.session:
        raise wrong("session", f"{item.session!r} has earlier items; put its items together")
    if item.turn <= last.turn:
        raise wrong("turn", f"{item.turn} follows {last.turn}; put the turns in order")
