"""Accepted drafts tinted by what they were copied from, and how many there were of each."""

from collections import Counter

from rich.style import Style
from rich.text import Text

from akunu_py.cli.reply_view.colors import BLUE, GREEN, ORANGE, PURPLE, RED, STEEL
from akunu_py.cli.reply_view.draft_sources import NameOf, is_copied, name_of
from akunu_py.values.types import StepStats

_TINTS = (BLUE, ORANGE, GREEN, PURPLE, RED, STEEL)
_LINES = (
    Style(underline=True),
    Style(underline=True, bold=True),
    Style(underline=True, italic=True),
    Style(underline=True, dim=True),
    Style(underline=True, bold=True, italic=True),
    Style(underline=True, reverse=True),
)
"""Where there is no colour."""


class DraftTint:
    """Gives names of sources their tints, in the order in which they are met, and counts tokens."""

    def __init__(self, name_of: NameOf = name_of, *, has_colors: bool) -> None:
        self._name_of = name_of
        tints = _TINTS if has_colors else _LINES
        # By the letters that `mark` gives out.
        self.styles = {chr(ord("a") + place): tint for place, tint in enumerate(tints)}
        self._marks: dict[str, str] = {}
        self._tokens: Counter[str] = Counter()
        self._passes = self._total = 0
        self._all_copied = True

    def mark(self, source: str, place: int) -> str:
        """Return the letter of a source's tint, a blank for the model's own text."""
        return self._mark_of(self._name_of(source, place)) if source else " "

    def count(self, step: StepStats) -> None:
        """Add a step's tokens."""
        self._passes += 1
        self._total += step.num_output_tokens
        accepted = step.num_accepted_tokens
        # A detail is made each time it is asked for.
        detail = step.detail if accepted else None
        if detail is None:
            return
        for drafted in [drafted for drafted in detail.drafted if drafted.accepted][:accepted]:
            source = drafted.source or detail.source or "drafter"
            place = -1 if drafted.place is None else drafted.place
            self._tokens[self._name_of(source, place)] += 1
            self._all_copied = self._all_copied and is_copied(source)

    def summary(self) -> Text:
        """Return the sources of the reply, in a sentence with the tints."""
        text = Text(f"{_counted(self._total, 'token')} in {_counted(self._passes, 'pass')}")
        if self._tokens:
            copied = sum(self._tokens.values())
            verb = "copied" if self._all_copied else "drafted"
            text.append(f"; {copied} {'was' if copied == 1 else 'were'} {verb}: ")
        for place, (name, count) in enumerate(self._tokens.most_common()):
            text.append(", " if place else "")
            text.append(f"{count} from ")
            text.append(name, self.styles[self._mark_of(name)])
        return text

    def _mark_of(self, name: str) -> str:
        letters = list(self.styles)
        return self._marks.setdefault(name, letters[len(self._marks) % len(letters)])


def _counted(count: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"
