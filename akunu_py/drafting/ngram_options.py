"""Options of the n-gram drafters. The last token of an n-gram is drafted from those before it."""

from dataclasses import dataclass

from akunu_py.drafting.lookup import LookupDrafter
from akunu_py.drafting.ngram import NgramDrafter, WindowedNgramDrafter
from akunu_py.system.errors import ConfigError
from akunu_py.values.option_fields import Count, option


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramOptions:
    """Options of `ngram`."""

    ngram_order: int = option(
        4, Count(2, "2 or more"), "Tokens of the longest n-gram.", metavar="N"
    )
    ngram_min_match: int = option(
        1,
        Count(1, "1 to ngram_order - 1"),
        "Fewest tokens of context that may decide a drafted token.",
        metavar="N",
    )

    def __post_init__(self) -> None:
        if self.ngram_min_match >= self.ngram_order:
            raise ConfigError(
                f"ngram_min_match is {self.ngram_min_match}; give 1 to ngram_order - 1, "
                f"{self.ngram_order - 1}"
            )

    def make(self, num_draft_tokens: int) -> NgramDrafter:
        """Make the drafter for one reply."""
        return NgramDrafter(
            max_order=self.ngram_order, num_draft_tokens=num_draft_tokens,
            min_match=self.ngram_min_match,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOptions(NgramOptions):
    """Options of `ngram-window`."""

    ngram_window: int = option(
        512, Count(2, "2 or more"), "Number of last tokens that ngram-window counts.", metavar="N"
    )

    def __post_init__(self) -> None:
        NgramOptions.__post_init__(self)
        if self.ngram_window < self.ngram_order:
            raise ConfigError(
                f"ngram_window is {self.ngram_window}; give at least ngram_order, "
                f"{self.ngram_order}"
            )

    def make(self, num_draft_tokens: int) -> NgramDrafter:
        """Make the drafter for one reply."""
        return WindowedNgramDrafter(
            max_order=self.ngram_order, num_draft_tokens=num_draft_tokens,
            min_match=self.ngram_min_match, history=self.ngram_window,
        )  # fmt: skip


class LookupOptions(NgramOptions):
    """Options of `lookup`."""

    def make(self, num_draft_tokens: int) -> LookupDrafter:  # type: ignore[override]
        """Make the drafter for one reply."""
        return LookupDrafter(
            max_context=self.ngram_order - 1,
            num_draft_tokens=num_draft_tokens,
            min_match=self.ngram_min_match,
        )
