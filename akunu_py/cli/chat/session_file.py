"""Conversations in files: saved and loaded as JSON, exported as Markdown.

A session is {"format": "akunu-chat-1", "model": NAME, "path": PATH, "system": TEXT or null,
"turns": [{"user": TEXT, "assistant": TEXT}, ...]}; earlier ones have no "path". Files are replaced
whole, and only files of their own kind.
"""

import json
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from akunu_py.engine.conversation import Turn
from akunu_py.system.errors import ConfigError
from akunu_py.system.files import open_to_read, replace_file

FORMAT = "akunu-chat-1"

MOST_BYTES = 64 * 2**20
"""Of a session that is read; a context of a million tokens is a few megabytes."""

_TITLE = 80
"""Characters of a title at most."""

_MARKDOWN_MARK = "<!-- exported by akunu chat -->"


class ChatSession(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="format", tag=FORMAT
):
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
    record = msgspec.to_builtins(session)
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
        return msgspec.json.decode(content, type=ChatSession)
    except msgspec.ValidationError as error:
        said = str(error).replace("`", "")
        raise ConfigError(f"{path} is not a session of this version of akunu: {said}") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{path} is not a session: it is not JSON") from None


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
