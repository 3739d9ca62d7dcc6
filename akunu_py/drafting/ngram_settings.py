"""Settings of the n-gram drafters, under one set of names.

`order` is the longest n-gram: its last token is drafted, the ones before are the context.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from akunu_py.drafting.lookup import LookupDrafter
from akunu_py.drafting.ngram import NgramDrafter, WindowedNgramDrafter
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import GenerationConfig

NGRAM_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    NgramDrafter.name: {"num_draft_tokens": 4, "order": 4, "min_match": 1},
    WindowedNgramDrafter.name: {
        "num_draft_tokens": 4, "order": 4, "window": 512, "min_match": 1,
    },
    LookupDrafter.name: {"num_draft_tokens": 10, "order": 4, "min_match": 1},
}  # fmt: skip
"""The settings of each drafter, with their defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramSettings:
    """Settings of an n-gram drafter; None is the drafter's default."""

    order: int | None = None
    """Length of the longest n-gram in tokens, 2 or more."""

    window: int | None = None
    """Number of last tokens that are counted, for `ngram-window` only."""

    min_match: int | None = None
    """Length of the shortest context that is used, 1 to order - 1."""

    @classmethod
    def of(cls, config: GenerationConfig) -> "NgramSettings":
        """Return the settings in a configuration."""
        return cls(
            order=config.ngram_order, window=config.ngram_window, min_match=config.ngram_min_match
        )

    def check_fit(self, name: str) -> None:
        """Raise ConfigError for a setting that the named drafter does not have."""
        known = NGRAM_DEFAULTS.get(name, {})
        for field in fields(self):
            if getattr(self, field.name) is not None and field.name not in known:
                having = [other for other, own in NGRAM_DEFAULTS.items() if field.name in own]
                raise ConfigError(
                    f"the drafter {name!r} has no ngram_{field.name}; leave it out, or choose "
                    f"{' or '.join(having)}"
                )


def make_ngram_drafter(
    name: str, num_draft_tokens: int | None = None, settings: NgramSettings | None = None
) -> NgramDrafter | LookupDrafter:
    """Make one of the drafters in `NGRAM_DEFAULTS` for one reply.

    Raises ConfigError for a setting that the drafter does not have or that is out of range.
    """
    settings = settings or NgramSettings()
    settings.check_fit(name)
    own = NGRAM_DEFAULTS[name]
    order = own["order"] if settings.order is None else settings.order
    least = own["min_match"] if settings.min_match is None else settings.min_match
    if order < 2:
        raise ConfigError(f"ngram_order is {order}; give 2 (bigrams) or more")
    if not 1 <= least < order:
        raise ConfigError(f"ngram_min_match is {least}; give 1 to ngram_order - 1, {order - 1}")
    if num_draft_tokens is None:
        num_draft_tokens = own["num_draft_tokens"]
    if name == LookupDrafter.name:
        return LookupDrafter(
            max_context=order - 1, num_draft_tokens=num_draft_tokens, min_match=least
        )
    if name == NgramDrafter.name:
        return NgramDrafter(max_order=order, num_draft_tokens=num_draft_tokens, min_match=least)
    window = own["window"] if settings.window is None else settings.window
    if window < order:
        raise ConfigError(f"ngram_window is {window}; give at least ngram_order, {order}")
    return WindowedNgramDrafter(
        max_order=order, num_draft_tokens=num_draft_tokens, history=window, min_match=least
    )
