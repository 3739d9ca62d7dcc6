"""History and completion in the forms that prompt_toolkit wants; imported where somebody types."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer
from prompt_toolkit.completion import Completion as Offer
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from akunu_py.cli.chat.commands import Completion

Keep = Callable[[str], str | None]


def make_history(path: Path | None, keep: Keep) -> History:
    """Return a history in a file, or for this run alone; `keep` says what is kept of an entry."""
    return _InMemory(keep) if path is None else _InFile(path, keep)


def make_completer(complete: Callable[[str], Iterable[Completion]]) -> Completer:
    """Return a completer that asks a function of the text before the cursor."""
    return _Completer(complete)


class _InMemory(InMemoryHistory):
    def __init__(self, keep: Keep) -> None:
        super().__init__()
        self._keep = keep

    def append_string(self, string: str) -> None:
        kept = self._keep(string)
        if kept is not None:
            super().append_string(kept)


class _InFile(FileHistory):
    def __init__(self, path: Path, keep: Keep) -> None:
        super().__init__(str(path))
        self._keep = keep

    def append_string(self, string: str) -> None:
        kept = self._keep(string)
        if kept is not None:
            super().append_string(kept)

    def load_history_strings(self) -> Iterable[str]:
        try:
            return super().load_history_strings()
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        # A full disk must not end a chat.
        with suppress(OSError):
            super().store_string(string.encode("utf-8", "replace").decode())


class _Completer(Completer):
    def __init__(self, complete: Callable[[str], Iterable[Completion]]) -> None:
        self._complete = complete

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002 - prompt_toolkit's signature
    ) -> Iterable[Offer]:
        for completion in self._complete(document.text_before_cursor):
            yield Offer(completion.text, start_position=-completion.replaced)
