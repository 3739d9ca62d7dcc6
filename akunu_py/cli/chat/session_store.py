"""Conversations that are kept by themselves: a file for each, in a folder of their own.

Files and folder are their owner's alone. The newest are kept. Nothing else of a conversation is
written, so what is deleted here is gone.
"""

import contextlib
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from akunu_py.cli.chat.attachments import question_of
from akunu_py.cli.chat.commands import line_of
from akunu_py.cli.chat.session_file import ChatSession, load_session, save_session
from akunu_py.system.errors import ConfigError

MOST = 200
"""Sessions that are kept; the oldest go first."""

_SHOWN = 50
"""Characters of a session's first message that a list shows."""

_READ_BYTES = 2**20
"""Once so much was read for what was typed before, no other session is."""

_LEFT_AFTER_S = 3600.0
"""A file that is not finished by then never will be."""

_NAME = re.compile(r"\d{4}-\d\d-\d\d-\d{6}(?:-\d{1,4})?")
"""Day, time and, where there are several of a second, a number."""


_LISTS = "`akunu sessions list` lists them"

_BEFORE = 20
"""Characters before a text that was searched for."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A file of the store: its name there, when it was last written, and its bytes."""

    name: str
    path: Path
    changed: float
    size: int

    @property
    def when(self) -> str:
        """Day and time of the last change, as clocks here show it."""
        return f"{datetime.fromtimestamp(self.changed).astimezone():%Y-%m-%d %H:%M}"

    def load(self) -> ChatSession:
        """Read the session; raises ConfigError for a file that is damaged."""
        return load_session(self.path)


class SessionStore:
    """The sessions of a folder, which is made when it is needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sessions(self) -> list[StoredSession]:
        """Return the sessions, the one changed last first."""
        found = []
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if path.suffix == ".json" and _NAME.fullmatch(path.stem):
                    with contextlib.suppress(OSError):
                        state = path.stat()
                        if not stat.S_ISDIR(state.st_mode):
                            changed, size = state.st_mtime, state.st_size
                            found.append(StoredSession(path.stem, path, changed, size))
        return sorted(found, key=lambda session: (session.changed, session.name), reverse=True)

    def named(self, name: str) -> StoredSession | None:
        """Return a session by its name, or a beginning of it that no other has; None for none.

        Raises ConfigError where there is more than one.
        """
        sessions = self.sessions()
        found = [session for session in sessions if session.name == name] or [
            session for session in sessions if name and session.name.startswith(name)
        ]
        if len(found) > 1:
            raise ConfigError(f"{len(found)} sessions begin with {name!r}; {_LISTS}")
        return found[0] if found else None

    def find(self, name: str) -> StoredSession:
        """Return a session as `named` does; raises ConfigError where there is none, too."""
        found = self.named(name)
        if found is None:
            raise ConfigError(f"there is no session named {name!r}; {_LISTS}")
        return found

    def search(self, text: str) -> Iterator[tuple[StoredSession, str]]:
        """Yield the sessions in which a text was said, in any case, each with where it was first.

        The latest come first, and damaged ones are left out.
        """
        said = re.compile(re.escape(text), re.IGNORECASE)
        for stored in self.sessions():
            with contextlib.suppress(ConfigError):
                turns = stored.load().turns
                texts = (text for turn in turns for text in (turn.user, turn.assistant))
                for match in filter(None, map(said.search, texts)):
                    yield stored, _around(match)
                    break

    def newest(self) -> StoredSession:
        """Return the session changed last; raises ConfigError where there is none."""
        sessions = self.sessions()
        if not sessions:
            raise ConfigError(
                "no conversation is kept yet; begin one with akunu chat, without --continue"
            )
        return sessions[0]

    def typed(self) -> Iterator[str]:
        """Yield the lines typed in the sessions, the latest first; damaged ones are left out."""
        size = 0
        for stored in self.sessions():
            if size > _READ_BYTES:
                return
            size += stored.size
            with contextlib.suppress(ConfigError):
                yield from (
                    line_of(question_of(turn.user)) for turn in reversed(stored.load().turns)
                )

    def remove(self, path: Path) -> None:
        """Delete a session and what a crash left of it; raises ConfigError if that fails."""
        self._delete(path, *self._folder.glob(f".{path.name}.*"))

    def sweep(self, older_than_s: float = 0.0) -> None:
        """Delete what crashes left; raises ConfigError as `remove`.

        Another chat may be writing a file that is not so old.
        """
        end = time.time() - older_than_s
        left = []
        with contextlib.suppress(OSError):
            left += [path for path in self._folder.glob(".*.json.*") if path.stat().st_mtime <= end]
        self._delete(*left)

    @staticmethod
    def _delete(*paths: Path) -> None:
        """Delete files; raises ConfigError for those that stay, once the others are gone."""
        left = []
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                left.append(f"{path} cannot be deleted: {error.strerror}")
        if left:
            raise ConfigError("; ".join(left))

    def save_new(self, session: ChatSession, now: datetime | None = None) -> Path:
        """Save a session under a name of its own, and drop the oldest of too many.

        Raises ConfigError where that cannot be done.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._folder.chmod(0o700)
            path = self._new_path(now or datetime.now(UTC).astimezone())
        except OSError as error:
            raise ConfigError(f"{self._folder} cannot be used: {error.strerror}") from None
        save_session(path, session)
        for old in self.sessions()[MOST:]:
            self.remove(old.path)
        with contextlib.suppress(ConfigError):
            self.sweep(_LEFT_AFTER_S)
        return path

    def _new_path(self, now: datetime) -> Path:
        name = f"{now:%Y-%m-%d-%H%M%S}"
        numbered = (f"{name}-{number}" for number in range(2, MOST + 2))
        names = (self._folder / f"{name}.json" for name in (name, *numbered))
        return next(path for path in names if not path.exists())


def describe_session(stored: StoredSession) -> tuple[str, str]:
    """Return a session's turns and how its first question begins, or why it cannot be read."""
    try:
        session = stored.load()
    except ConfigError as error:
        return "damaged", str(error)
    said = " ".join(question_of(session.turns[0].user).split()) if session.turns else ""
    turns = f"{len(session.turns)} turn{'' if len(session.turns) == 1 else 's'}"
    return turns, said if len(said) <= _SHOWN else f"{said[: _SHOWN - 3]}..."


def _around(match: re.Match[str]) -> str:
    """Return the text around a match, on one line."""
    begin = max(0, match.start() - _BEFORE)
    end = begin + _SHOWN
    shown = " ".join(match.string[begin:end].split())
    return f"{'...' * (begin > 0)}{shown}{'...' * (end < len(match.string))}"


def default_store() -> SessionStore:
    """Return the store in the user's folder for data."""
    from platformdirs import user_data_path

    return SessionStore(user_data_path("akunu", appauthor=False) / "sessions")


class KeptSession:
    """The session that a conversation is kept in: new ones are begun when something was said."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self._path: Path | None = None
        self._saved: ChatSession | None = None

    def keep(self, session: ChatSession) -> None:
        """Make the file what the conversation is; without turns there is none.

        Raises ConfigError where that cannot be done, and for a file that somebody else deleted: it
        does not come back.
        """
        if session == self._saved:
            return
        self._saved = session
        if not session.turns:
            if self._path is not None:
                self.store.remove(self._path)
            self._path = None
        elif self._path is None:
            self._path = self.store.save_new(session)
        elif self._path.exists():
            save_session(self._path, session)
        else:
            raise ConfigError(f"{self._path} was deleted")

    def begin(self, path: Path | None = None, session: ChatSession | None = None) -> None:
        """Keep what comes in a new session, or go on with one that lies in `path`."""
        self._path, self._saved = path, session
