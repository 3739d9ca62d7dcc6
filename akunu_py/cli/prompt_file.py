"""Replies to the prompts of a file, several at once: `akunu generate --prompts`."""

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from akunu_py.cli.command import option, stack
from akunu_py.cli.count_progress import count_progress
from akunu_py.cli.input_text import GivenPath
from akunu_py.cli.verbosity import is_quiet
from akunu_py.system.errors import AkunuError, ConfigError
from akunu_py.system.files import open_to_append
from akunu_py.system.shown_text import one_line

if TYPE_CHECKING:
    from akunu_py.engine.engine import Engine
    from akunu_py.engine.lane import CheckedCall
    from akunu_py.values.types import GenerationConfig, GenerationResult

_FILE = GivenPath(path_type=Path, dir_okay=False)
_OPTIONS = (
    option(
        "--prompts", type=_FILE, metavar="FILE", group="Output",
        help="Answer each line of a JSON Lines file, which has a prompt or messages.",
    ),
    option(
        "--output", type=_FILE, metavar="FILE", group="Output",
        help="Append the replies to --prompts to FILE; the same command goes on from there.",
    ),
    option(
        "--streams", type=click.IntRange(min=1), metavar="N", group="Output",
        help="Make N replies to --prompts at once; left out, 8 or as many as memory holds.",
    ),
)  # fmt: skip

_OF_ONE_REPLY = {"prompt": "--prompt", "path": "--file", "as_json": "--json"}


def prompt_file_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --prompts, --output and --streams; the command gets one `prompt_file`."""

    @wraps(function)
    def wrapped(
        *args: Any, prompts: Path | None, output: Path | None, streams: int | None, **options: Any
    ) -> Any:
        prompt_file = None
        if prompts is not None and output is not None:
            prompt_file = PromptFile(prompts, output, streams)
            for name, flag in _OF_ONE_REPLY.items():
                if options[name]:
                    raise click.UsageError(f"{flag} is for one reply; leave out it or --prompts")
        elif prompts is not None or output is not None:
            raise click.UsageError("give --prompts and --output together")
        return function(*args, prompt_file=prompt_file, **options)

    return stack(_OPTIONS, wrapped)


@dataclass(frozen=True, slots=True)
class Task:
    """A line of a file of prompts."""

    place: str
    """File and line, for messages."""

    id: int | str
    prompt: str
    """A text to continue without a template; "" with messages."""

    messages: list[dict[str, Any]]
    config: "GenerationConfig"

    def call(self, engine: "Engine", given: Collection[str]) -> "CheckedCall":
        """Check the call; options that are not `given` are those that the model recommends."""
        config = engine.description.recommended.fill(self.config, given)
        if self.prompt:
            return engine.check(engine.prompt_ids(self.prompt), config)
        return engine.check_chat(self.messages, config)


@dataclass(frozen=True, slots=True)
class PromptFile:
    """A file of prompts, and the file of their replies."""

    path: Path
    output: Path
    streams: int | None

    def prepare(
        self,
        config: "GenerationConfig",
        given: Collection[str],
        *,
        raw: bool,
        system: str | None,
    ) -> "Callable[[Engine], None]":
        """Read both files; return a function that makes the replies that are missing.

        It ends with the exit code 1 if some fail: those are named, and not written. Raises
        ConfigError for a file that cannot be used; it names the line that is not a prompt.
        """
        tasks = self._tasks(config, raw=raw, system=system)
        return partial(self._make_replies, tasks, given, ReplyFile(self.output))

    def _tasks(self, config: "GenerationConfig", *, raw: bool, system: str | None) -> list[Task]:
        # Not for --help.
        from akunu_py.bench.prompt_files import read_lines

        tasks: dict[int | str, Task] = {}
        for number, content in read_lines(self.path):
            place = f"{self.path.name}, line {number}"
            try:
                task = _task(content, place, number, config, raw=raw, system=system)
            except ConfigError as error:
                raise ConfigError(f"{place}: {error}") from None
            if task.id in tasks:
                raise ConfigError(f"{place}: an earlier line has the id {task.id!r:.60}")
            tasks[task.id] = task
        if not tasks:
            raise ConfigError(f"{self.path.name} is empty; give one JSON object a line")
        return list(tasks.values())

    def _make_replies(
        self,
        tasks: Sequence[Task],
        given: Collection[str],
        replies: "ReplyFile",
        engine: "Engine",
    ) -> None:
        missing = [task for task in tasks if task.id not in replies.ids]
        done, failed, cut = len(tasks) - len(missing), 0, 0
        begun: list[Task] = []

        def fail(task: Task, error: Exception) -> None:
            nonlocal failed
            failed += 1
            message = str(error) if isinstance(error, AkunuError) else repr(error)
            click.echo(one_line(f"{task.place}: {message}"), err=True)

        def calls() -> "Iterator[CheckedCall]":
            for task in missing:
                try:
                    call = task.call(engine, given)
                except AkunuError as error:
                    fail(task, error)
                else:
                    begun.append(task)
                    yield call

        making = engine.generate_many(calls(), streams=self.streams)
        try:
            with count_progress("replies") as progress, making as results:
                progress(done, len(tasks))
                for place, result in results:
                    if isinstance(result, Exception):
                        fail(begun[place], result)
                        continue
                    replies.add(begun[place].id, result)
                    cut += result.finish_reason == "length"
                    done += 1
                    progress(done, len(tasks))
        finally:
            if not is_quiet():
                left = "" if done == len(tasks) else "; the same command makes the others"
                cuts = f"; {cut} ended at --max-tokens or a full context" if cut else ""
                told = f"{done} of {len(tasks)} replies are in {self.output}{cuts}{left}"
                click.echo(told, err=True)
        if failed:
            raise click.exceptions.Exit(1)


def _task(
    content: bytes,
    place: str,
    number: int,
    config: "GenerationConfig",
    *,
    raw: bool,
    system: str | None,
) -> Task:
    """Read a line; raise FieldError or ConfigError for one that is not a prompt."""
    from akunu_py.bench.prompt_files import PromptLine
    from akunu_py.bench.rows import FieldError, convert, read_record
    from akunu_py.values.messages import read_messages

    line = convert(read_record(content), PromptLine)
    if bool(line.prompt.strip()) == (line.messages is not None):
        raise FieldError("", "give either prompt or messages")
    if raw and line.messages is not None:
        raise FieldError("messages", "they need the chat template; leave out --raw")
    messages = line.messages
    if messages is None:
        messages = [{"role": "user", "content": line.prompt}]
    read_messages(messages)
    if system is not None and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    if line.max_tokens is not None:
        config = replace(config, max_tokens=line.max_tokens)
    key = number if line.id is None else line.id
    return Task(place, key, line.prompt if raw else "", messages, config)


class ReplyFile:
    """The replies that are finished, a JSON object a line in the order of their ends.

    A last line that a crash cut off is dropped. Raises ConfigError for a file of something else, or
    one that cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.ids: set[int | str] = set()
        self._path = path
        with self._open() as file:
            *lines, rest = path.read_bytes().split(b"\n")
            for number, line in enumerate(lines, start=1):
                self._read(line, f"line {number} of {path}")
            if not rest.startswith(_BEGINNING[: len(rest)]):
                self._read(rest, f"the last line of {path}")
            file.truncate(sum(len(line) + 1 for line in lines))

    def _read(self, line: bytes, where: str) -> None:
        try:
            record = json.loads(line)
            key, _ = record["id"], record["finish_reason"]
            self.ids.add(key)
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{where} is not a reply; give another file as --output") from None

    def add(self, key: int | str, result: "GenerationResult") -> None:
        """Write a reply, at once."""
        with self._open() as file:
            file.write(json.dumps(_record(key, result)).encode() + b"\n")
        self.ids.add(key)

    @contextlib.contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        try:
            with os.fdopen(open_to_append(self._path), "ab") as file:
                yield file
        except OSError as error:
            raise ConfigError(f"cannot write {self._path}: {error.strerror}") from None


_BEGINNING = b'{"id": '


def _record(key: int | str, result: "GenerationResult") -> dict[str, object]:
    message = result.message
    reasoning = message.reasoning if message is not None else ""
    met = result.constraint_met
    return {
        "id": key,
        "text": result.text if message is None else message.text,
        **({"reasoning": reasoning} if reasoning else {}),
        "finish_reason": result.finish_reason,
        **({} if met is None else {"constraint_met": met}),
        "seed": result.seed,
        "usage": {
            "prompt_tokens": result.num_prompt_tokens,
            "completion_tokens": len(result.token_ids),
        },
    }
