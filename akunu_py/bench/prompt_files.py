"""Prompts from files, in akunu's format and those of other projects (docs/measuring.md).

The fields of the first valid line tell the format of a file. A line of another format is reported,
and reading continues. Nothing in a file is run: the tests and solutions of HumanEval are only text
here.
"""

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from akunu_py.bench.result_file import Failure
from akunu_py.bench.rows import FieldError, Row, read_record
from akunu_py.bench.workloads import Prompt, prompts_of
from akunu_py.system.errors import ConfigError, ContractError

MAX_FILE_BYTES = 1 << 28
"""Limit of the decompressed text, so that a small file cannot fill the memory."""
MAX_LINE_BYTES = 1 << 24

_GZIP = b"\x1f\x8b"


def read_prompts(path: Path) -> tuple[tuple[Prompt, ...], tuple[Failure, ...]]:
    """Return the prompts of a JSON Lines file, and the lines that are not prompts.

    The file may be compressed by gzip. Raises ConfigError for a file that cannot be read, is larger
    than MAX_FILE_BYTES or has no prompt.
    """
    return parse_prompt_file(_read(path), path.name)


def parse_prompt_file(data: bytes, name: str) -> tuple[tuple[Prompt, ...], tuple[Failure, ...]]:
    """Read the lines of a file, which errors call `name`. Raises as `read_prompts` does."""
    reader = _Reader(name.removesuffix(".gz").removesuffix(".jsonl") or name)
    failures: list[Failure] = []
    for number, line in _lines(data):
        if len(line) > MAX_LINE_BYTES:
            failures.append(
                Failure(f"{name}, line {number}", f"longer than {MAX_LINE_BYTES >> 20} MiB")
            )
            continue
        try:
            reader.take(read_record(line))
        except (FieldError, ContractError) as error:
            failures.append(Failure(f"{name}, line {number}", str(error)))
    if not reader.prompts:
        if not failures:
            raise ConfigError(f"{name} is empty; give one JSON object a line")
        first = failures[0]
        raise ConfigError(f"{name} has no prompt that can be used; {first.item}: {first.error}")
    return tuple(reader.prompts), tuple(failures)


class PromptLine(Row, frozen=True):
    """A line of `akunu generate --prompts`: a prompt, or the messages of a chat."""

    id: int | str | None = None
    prompt: str = ""
    messages: list[dict[str, Any]] | None = None
    max_tokens: int | None = None


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Return the lines of a file that are not blank, with their numbers, from 1 on.

    Raises ConfigError for a file that cannot be read or is larger than MAX_FILE_BYTES.
    """
    return _lines(_read(path))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if data.startswith(_GZIP):
            with gzip.open(path) as file:
                data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        # A path with a zero byte raises ValueError; a truncated gzip file the others.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{path} cannot be read: {reason}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} has more than {MAX_FILE_BYTES >> 20} MiB; split it")
    return data


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    # Not splitlines: JSON allows U+2028 inside a string.
    lines = data.removeprefix(codecs.BOM_UTF8).split(b"\n")
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


class _Reader:
    """Takes records of one format, the first one's; `category` is their default category."""

    def __init__(self, category: str) -> None:
        self.prompts: list[Prompt] = []
        self._category = category
        self._format: _Format | None = None
        self._ids: set[str] = set()
        self._sessions: set[str] = set()

    def take(self, record: dict[str, Any]) -> None:
        """Add the prompts of a record; raise FieldError or ContractError and add none of them."""
        found = _format_of(record)
        if self._format not in (None, found):
            raise FieldError("", f"of the format {found.name}, unlike the lines before")
        prompts = found.read(record, self._category)
        self._check_place(prompts)
        self._format = found
        self.prompts += prompts
        self._ids.update(prompt.id for prompt in prompts)
        self._sessions.update(prompt.session for prompt in prompts)

    def _check_place(self, prompts: list[Prompt]) -> None:
        """Check that ids are new, and that turns of a session are adjacent and in order."""
        last = self.prompts[-1] if self.prompts else None
        for prompt in prompts:
            if prompt.id in self._ids:
                raise FieldError("", f"an earlier line has the id {prompt.id!r:.60}")
            same = last is not None and last.session == prompt.session
            if same and last is not None and prompt.turn <= last.turn:
                raise FieldError("", f"turn {prompt.turn} of a session follows turn {last.turn}")
            if not same and prompt.session in self._sessions:
                raise FieldError(
                    "",
                    f"the session {prompt.session!r:.60} has earlier lines; put its lines together",
                )
            last = prompt


def _own(record: dict[str, Any], _category: str) -> list[Prompt]:
    return prompts_of(record)


def _trace(record: dict[str, Any], _category: str) -> list[Prompt]:
    """Return the prompt of a recorded reply; what was recorded of the reply is passed over."""
    where = {name: record[name] for name in ("session", "turn") if name in record}
    if where.keys() == {"turn"}:
        raise FieldError("turn", "needs a session to be a turn of")
    return [Prompt(record["id"], record["category"], "raw", record["prompt"], **where)]


def _spec_bench(record: dict[str, Any], category: str) -> list[Prompt]:
    """Return the question's first turn; later turns would need a reply to it."""
    turns = record["turns"]
    if not isinstance(turns, list) or not turns:
        raise FieldError("turns", f"{turns!r:.60} is not a list of one turn or more")
    if not isinstance(turns[0], str):
        raise FieldError("turns", f"{turns[0]!r:.60} is not a text")
    return [
        Prompt(
            _name(record, "question_id"),
            record.get("category", category),
            "chat",
            messages=({"role": "user", "content": turns[0]},),
        )
    ]


def _human_eval(record: dict[str, Any], category: str) -> list[Prompt]:
    reference = record.get("canonical_solution", "")
    return [
        Prompt(_name(record, "task_id"), category, "raw", record["prompt"], reference=reference)
    ]


def _name(record: Mapping[str, Any], field: str) -> str:
    value = record[field]
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise FieldError(field, f"{value!r:.60} is neither a text nor a whole number")
    return str(value)


@dataclass(frozen=True, slots=True)
class _Format:
    """A record with `fields` has this format; `read` takes the record and the file's name."""

    name: str
    fields: frozenset[str]
    read: Callable[[dict[str, Any], str], list[Prompt]]


_FORMATS = (
    _Format("akunu prompts", frozenset({"id", "category", "kind"}), _own),
    _Format("trace", frozenset({"id", "category", "prompt", "output"}), _trace),
    _Format("Spec-Bench", frozenset({"question_id", "turns"}), _spec_bench),
    _Format("HumanEval", frozenset({"task_id", "prompt"}), _human_eval),
)


def _format_of(record: Mapping[str, Any]) -> _Format:
    for known in _FORMATS:
        if known.fields <= record.keys():
            return known
    wanted = "; ".join(f"{known.name}: {', '.join(sorted(known.fields))}" for known in _FORMATS)
    raise FieldError("", f"not of a known format; the fields tell the format ({wanted})")
