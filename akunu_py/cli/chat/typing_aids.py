"""History and completion in the forms that prompt_toolkit wants; imported where somebody types."""

from collections.abc import Callable, Iterable, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer
from prompt_toolkit.completion import Completion as Offer
from prompt_toolkit.document import Document
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.shortcuts import choice

from akunu_py.cli.chat.commands import Completion

Keep = Callable[[str], str | None]


def make_history(earlier: Callable[[], Iterable[str]], keep: Keep) -> History:
    """Return a history for this run; `keep` says what is kept of an entry.

    `earlier` gives the entries of earlier runs, the latest first.
    """
    return _OfThisRun(earlier, keep)


def make_completer(complete: Callable[[str], Iterable[Completion]]) -> Completer:
    """Return a completer that asks a function of the text before the cursor."""
    return _Completer(complete)


def choose(question: str, options: Sequence[tuple[str, str]]) -> str | None:
    """Let somebody choose by arrows or numbers; None where Esc or Ctrl-C leaves it."""
    keys = KeyBindings()

    @keys.add("escape", eager=True)
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt())

    try:
        return choice(question, options=options, key_bindings=keys)
    except KeyboardInterrupt:
        return None


class _OfThisRun(History):
    def __init__(self, earlier: Callable[[], Iterable[str]], keep: Keep) -> None:
        super().__init__()
        self._earlier = earlier
        self._keep = keep

    def append_string(self, string: str) -> None:
        kept = self._keep(string)
        if kept is not None:
            super().append_string(kept)

    def load_history_strings(self) -> Iterable[str]:
        return self._earlier()

    def store_string(self, string: str) -> None:
        """Do nothing: conversations are kept, and not what was typed."""


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
