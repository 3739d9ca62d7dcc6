"""Traces: recorded prompts and outputs, one JSON object a line, read strictly.

The format is in docs/benchmarks.md. A line that does not fit it is reported with the field, and the
rest goes on where the caller takes reports; nothing of such a line is used.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from akunu_py.bench.replay.trace_steps import FIELDS, FieldError, check_ids
from akunu_py.bench.result_file import Failure
from akunu_py.errors import ConfigError

_REQUIRED = ("id", "category", "prompt", "output")
_NOTES = ("subcategory", "model", "decoding", "source_repo", "license", "vocabulary")
"""Texts that say where an item comes from; but for the vocabulary a replay has no use for them."""


@dataclass(frozen=True, slots=True)
class TraceItem:
    """One reply: what was asked (`prompt`, the conversation so far) and what came (`output`).

    Items of one `session` (the id, where a line gives none) follow each other in the order of
    their `turn`. `prompt_ids` and `token_ids` are prompt and output in ids of the tokenizer with
    that `vocabulary` (`akunu_py.drafting.memory.vocabulary_fingerprint`); empty where not given.
    """

    id: str
    category: str
    prompt: str
    output: str
    session: str
    turn: int = 0
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    vocabulary: str = ""

    @property
    def half(self) -> int:
        """0 or 1, by a hash of the session: which half of the items this one belongs to."""
        return half_of(self.session)


def half_of(session: str) -> int:
    """Return the parity of a session's SHA-256 as a number: 0 tunes, 1 is reported."""
    return hashlib.sha256(session.encode()).digest()[-1] & 1


def read_trace(path: Path, failures: list[Failure] | None = None) -> list[TraceItem]:
    """Read a trace file.

    Args:
        path: of the file.
        failures: gets the lines that are not of the format, and the others are read; None: the
            first such line is an error.

    Raises ConfigError naming file, line and field for such a line, and for a file that cannot be
    read or has no item.

    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    return parse_trace(data, str(path), failures)


def parse_trace(data: bytes, name: str, failures: list[Failure] | None = None) -> list[TraceItem]:
    """Read the lines of a trace; `name` is what errors call it. Otherwise as `read_trace`."""
    items: list[TraceItem] = []
    lines: dict[str, int] = {}
    sessions: set[str] = set()
    failed: list[Failure] = []
    # Not splitlines: JSON allows U+2028 inside a string.
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            item = read_item(read_record(line))
            _check_id(item, lines)
            if item.session in sessions:
                _check_order(items[-1], item)
        except FieldError as error:
            where = f"{name}, line {number}"
            if failures is None:
                field = f", field {error.field}" if error.field else ""
                raise ConfigError(f"{where}{field}: {error}") from None
            reason = f"field {error.field}: {error}" if error.field else str(error)
            failed.append(Failure(where, reason))
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


def read_record(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line; raise FieldError for others, and a field given twice."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FieldError("", f"not UTF-8 text (byte {error.start} of the line)") from None
    try:
        record = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise FieldError("", f"not JSON: {error.msg} (column {error.colno})") from None
    except (RecursionError, ValueError):
        raise FieldError("", "not JSON that can be read: nested too deep, or a huge number") from (
            None
        )
    if not isinstance(record, dict):
        raise FieldError("", f"an item is a JSON object, not {record!r:.60}")
    return record


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for key, value in pairs:
        if key in record:
            raise FieldError(key, "given twice")
        record[key] = value
    return record


def read_item(record: dict[str, Any]) -> TraceItem:
    """Return the item of a line's object; raise FieldError naming the field that does not fit."""
    for field in _REQUIRED:
        if field not in record:
            raise FieldError(field, "missing")
    for field, value in record.items():
        if field == "turn":
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise FieldError(field, f"{value!r:.60} is no whole number from 0 on")
        elif field in FIELDS:
            continue  # together below: they have to agree
        elif field not in {*_REQUIRED, *_NOTES, "session"}:
            raise FieldError(field, "not a field of a trace; leave it out")
        else:
            _check_text(field, value)
    if "turn" in record and "session" not in record:
        raise FieldError("turn", "needs a session to be a turn of")
    check_ids(record)
    return TraceItem(
        id=record["id"],
        category=record["category"],
        prompt=record["prompt"],
        output=record["output"],
        session=record.get("session", record["id"]),
        turn=record.get("turn", 0),
        prompt_ids=tuple(record.get("prompt_ids", ())),
        token_ids=tuple(record.get("token_ids", ())),
        vocabulary=record.get("vocabulary", ""),
    )


def _check_text(field: str, value: Any) -> None:
    if not isinstance(value, str):
        raise FieldError(field, f"{value!r:.60} is no text")
    if not value and field not in _NOTES:
        raise FieldError(field, "empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise FieldError(
            field, f"half a surrogate pair at character {error.start}, which no tokenizer takes"
        ) from None


def _check_id(item: TraceItem, lines: Mapping[str, int]) -> None:
    if item.id in lines:
        raise FieldError("id", f"{item.id!r} is that of line {lines[item.id]} already")


def _check_order(last: TraceItem, item: TraceItem) -> None:
    """Check that a session's items stand together, in the order of their turns."""
    if last.session != item.session:
        raise FieldError(
            "session", f"{item.session!r} went on before other items; put its items together"
        )
    if item.turn <= last.turn:
        raise FieldError("turn", f"{item.turn} follows {last.turn}; put the turns in order")
