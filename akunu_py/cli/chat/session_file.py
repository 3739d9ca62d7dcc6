"""Conversations in files: saved and loaded as JSON, exported as Markdown.

A session is {"format": "akunu-chat-1", "model": NAME, "path": PATH, "system": TEXT or null,
"turns": [{"user": TEXT, "assistant": TEXT}, ...]}; earlier ones have no "path". Files are replaced
whole, and only files of their own kind.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from akunu_py.engine.conversation import Turn
from akunu_py.system.errors import ConfigError
from akunu_py.system.files import open_to_read, replace_file

_FORMATS = "akunu-chat-"
FORMAT = f"{_FORMATS}1"

MOST_BYTES = 64 * 2**20
"""Of a session that is read; a context of a million tokens is a few megabytes."""

_TITLE = 80
"""Characters of a title at most."""

_MARKDOWN_MARK = "<!-- exported by akunu chat -->"
_FIELDS = {"format", "model", "system", "turns"}


@dataclass(frozen=True, slots=True)
class ChatSession:
    """A saved conversation; `model` is the name of the model that answered, `path` its file."""

    model: str
    system: str | None
    turns: tuple[Turn, ...]
    path: str = ""


def save_session(path: Path, session: ChatSession) -> None:
    """Write a session to a file, whole or not at all.

    Raises ConfigError where the file cannot be written, exists and is not a session, or would be
    larger than what is read.
    """
    record = {
        "format": FORMAT,
        "model": session.model,
        "path": session.path,
        "system": session.system,
        "turns": [{"user": turn.user, "assistant": turn.assistant} for turn in session.turns],
    }
    # Text of a terminal or a model may hold a lone half of a surrogate pair.
    content = json.dumps(record, ensure_ascii=False, indent=1).encode("utf-8", "replace")
    if len(content) >= MOST_BYTES:
        raise ConfigError(f"the conversation is larger than {MOST_BYTES / 2**20:g} MB")
    beginning = f'{{\n "format": "{FORMAT}"'.encode()
    _replace_own(path, content + b"\n", beginning, "session")


def load_session(path: Path) -> ChatSession:
    """Read a session; raises ConfigError for a file that is not one or cannot be read."""
    content = read_regular_file(path, MOST_BYTES)
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        raise ConfigError(f"{path} is not a session: it is not JSON") from None
    written = record.get("format") if isinstance(record, dict) else None
    if isinstance(written, str) and written.startswith(_FORMATS) and written != FORMAT:
        raise ConfigError(
            f"{path} is a session of another version of akunu: its format is {written!r}, and this "
            f"one reads {FORMAT!r}"
        )
    if not isinstance(record, dict) or written != FORMAT:
        raise ConfigError(f"{path} is not a session: its format is not {FORMAT!r}")
    if record.keys() - {"path"} != _FIELDS:
        odd = ", ".join(sorted((record.keys() - {"path"}) ^ _FIELDS))
        raise ConfigError(f"{path} is not a session: missing or unknown fields: {odd}")
    system, turns = record["system"], record["turns"]
    place = record.get("path", "")
    texts = (record["model"], place, "" if system is None else system)
    if not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"{path} is not a session: model, path and system must be strings")
    if not isinstance(turns, list):
        raise ConfigError(f"{path} is not a session: turns must be a list")
    return ChatSession(
        record["model"],
        system,
        tuple(_turn(path, number, turn) for number, turn in enumerate(turns, 1)),
        place,
    )


def markdown(session: ChatSession) -> str:
    """Return a session as it is read by people, its first question as the title."""
    from akunu_py.cli.chat.attachments import question_of  # imports this module

    said = question_of(session.turns[0].user) if session.turns else "A chat"
    model = " ".join(session.model.split())
    parts = [f"# {' '.join(said.split())[:_TITLE]}", f"With {model}."]
    if session.system:
        parts += ["## System", session.system]
    for turn in session.turns:
        parts += ["## User", turn.user, "## Assistant", turn.assistant]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def export_markdown(
    path: Path, session: ChatSession, settings: Mapping[str, str] | None = None
) -> None:
    """Write a session for reading, with date and `settings` if given; raises as `save_session`."""
    head, _, rest = markdown(session).partition("\n\n## ")
    if settings is not None:
        said = ", ".join(f"{name} {' '.join(value.split())}" for name, value in settings.items())
        now = f"{datetime.now().astimezone():%Y-%m-%d %H:%M %z}"
        head = f"{head.rstrip()}\n\nExported on {now}; settings: {said}."
    text = "\n\n## ".join([head.rstrip(), *([rest] if rest else [])])
    content = f"{_MARKDOWN_MARK}\n\n{text.rstrip()}\n"
    _replace_own(path, content.encode("utf-8", "replace"), _MARKDOWN_MARK.encode(), "export")


def read_regular_file(path: Path, most: int) -> bytes:
    """Return a file's content; raises ConfigError for none, or one above `most` bytes."""
    try:
        with open_to_read(path) as stream:
            content = stream.read(most + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise _failure(path, "read", error) from None
    if len(content) > most:
        raise ConfigError(f"{path} is larger than {most / 2**20:g} MB")
    return content


def _turn(path: Path, number: int, turn: object) -> Turn:
    if not isinstance(turn, dict) or turn.keys() != {"user", "assistant"}:
        raise ConfigError(f"{path} is not a session: turn {number} must have user and assistant")
    user, assistant = turn["user"], turn["assistant"]
    if not isinstance(user, str) or not isinstance(assistant, str):
        raise ConfigError(f"{path} is not a session: turn {number} must hold strings")
    return Turn(user, assistant)


def _replace_own(path: Path, content: bytes, beginning: bytes, kind: str) -> None:
    """Replace a file that begins as ours do, or make one."""
    try:
        # A link stays one: what it points to is replaced.
        target = Path(os.path.realpath(path))
        if target.exists():
            if not target.is_file():
                raise ConfigError(f"{path} is not a regular file; choose another name")
            with target.open("rb") as stream:
                if stream.read(len(beginning)) != beginning:
                    raise ConfigError(
                        f"{path} already exists and is not a chat {kind}; choose another name"
                    )
        replace_file(target, content, private=True)
    except (OSError, ValueError) as error:
        raise _failure(path, "written", error) from None


def _failure(path: Path, what: str, error: OSError | ValueError) -> ConfigError:
    """Say why a file cannot be used; ConfigError is a ValueError and stays as it is."""
    if isinstance(error, ConfigError):
        return error
    reason = error.strerror if isinstance(error, OSError) else None
    return ConfigError(f"{path} cannot be {what}: {reason or error}")
