"""Statistics of a conversation's replies, with what each number means."""

from collections.abc import Iterator

from akunu_py.values.types import DecodeStats


def statistics_rows(stats: DecodeStats) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and meaning of each number that is known."""
    yield "tokens", f"{stats.output_tokens:,}", "written by the model"
    yield (
        "passes", f"{stats.steps:,}",
        "runs of the model; each checks a draft and adds a token of its own",
    )  # fmt: skip
    if stats.tokens_per_pass is not None:
        yield (
            "tokens a pass", f"{stats.tokens_per_pass:.2f}",
            "1 without drafting; more is faster, unless the larger passes cost too much",
        )  # fmt: skip
    if stats.fire_rate is not None:
        yield "fire rate", f"{stats.fire_rate:.0%}", "passes that checked a draft"
    if stats.hit_rate is not None and stats.alpha is not None:
        yield "drafted", f"{stats.drafted:,}", "tokens guessed from earlier text"
        yield "accepted", f"{stats.accepted:,}", "guesses that were the model's own choice"
        yield "hit rate", f"{stats.hit_rate:.0%}", "accepted of drafted"
        yield (
            "alpha", f"{stats.alpha:.0%}",
            "accepted of those compared; guesses after a wrong one are not",
        )  # fmt: skip
