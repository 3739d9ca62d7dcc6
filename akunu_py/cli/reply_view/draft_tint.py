"""Accepted drafts tinted by what they were drafted from, with a legend."""

from collections import Counter

from rich.style import Style

from akunu_py.cli.reply_view.blocks import BlockRenderer
from akunu_py.types import StepStats

# Dark letters on backgrounds of falling lightness, so that they differ without hue as well; of the
# palette of 256 colours, since rich finds the nearest of 16 where there are no more.
_TINTS = tuple(
    Style(color="black", bgcolor=f"color({number})") for number in (195, 222, 150, 183, 109, 173)
)
_LINES = (
    Style(underline=True),
    Style(underline=True, bold=True),
    Style(underline=True, italic=True),
    Style(underline=True, dim=True),
    Style(underline=True, bold=True, italic=True),
    Style(underline=True, reverse=True),
)
"""Where there is no colour."""

_WORDS = {
    "prompt": "the prompt",
    "reply": "this reply",
    "memory": "earlier replies and files",
    "lookup": "the text so far",
    "ngram": "n-gram counts",
    "ngram-window": "n-gram counts",
    "unigram": "n-gram counts",
    "bigram": "n-gram counts",
    "counts": "n-gram counts",
    "corpus": "counts of a corpus",
    "recycling": "the model's own candidates",
    "candidate": "the model's own candidates",
    "draft-model": "the draft model",
}
"""What the sources of the drafters here are to a user; the first three are those of `auto`."""


class DraftTint:
    """Gives sources their tints, in the order in which they are met, and counts their tokens."""

    def __init__(self, renderer: BlockRenderer) -> None:
        self._renderer = renderer
        self._styles = _TINTS if renderer.has_colors else _LINES
        self._by_source: dict[str, Style] = {}
        self._tokens: Counter[str] = Counter()
        self._own = 0

    def count(self, step: StepStats) -> None:
        """Add a step's tokens."""
        accepted = step.num_accepted_tokens
        self._own += step.num_output_tokens - accepted
        # A detail is made each time it is asked for.
        detail = step.detail if accepted else None
        if detail is None:
            return
        taken = [drafted for drafted in detail.drafted if drafted.accepted][:accepted]
        self._tokens.update(drafted.source or detail.source or "drafter" for drafted in taken)

    def paint(self, text: str, source: str) -> str:
        """Return harmless text in a source's tint; it may have line ends."""
        if not source:
            return text
        style = self._style(source)
        # A background would otherwise fill the rest of a line that ends within it.
        lines = text.split("\n")
        return "\n".join(self._renderer.paint(line, style) if line else "" for line in lines)

    def legend(self) -> str:
        """Return what how many tokens were drafted from, in its tint; "" where none were."""
        if not self._tokens:
            return ""
        parts = [
            f"{self._renderer.paint(f' {_words(source)} ', self._style(source))} {count}"
            for source, count in self._tokens.most_common()
        ]
        return f"tokens drafted from {', '.join(parts)}; the model's own {self._own}"

    def _style(self, source: str) -> Style:
        known = self._by_source
        if source not in known:
            known[source] = self._styles[len(known) % len(self._styles)]
        return known[source]


def _words(source: str) -> str:
    """Return what a user calls a source; a plug-in's own word without control characters."""
    words = " and ".join(dict.fromkeys(_WORDS.get(name, name) for name in source.split("+")))
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in words
    )
