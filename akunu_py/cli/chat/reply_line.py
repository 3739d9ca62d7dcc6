"""The line under a reply: its pace, what came free, and how full the context is."""

from typing import TYPE_CHECKING

from akunu_py.cli.reply_view.draft_sources import free_tokens
from akunu_py.cli.terminal import remarks

if TYPE_CHECKING:
    from rich.text import Text

    from akunu_py.values.types import GenerationResult

_FULL_FROM = 0.7
"""Share of the context from which it is shown how full it is."""

_CELLS = 10


def reply_line(
    result: "GenerationResult", context: int, *, end: bool = True, drafts: bool = True
) -> str:
    """Return the line on a reply: tokens a second, and remarks.

    Without `end` how it ended is left out, without `drafts` how many tokens came from them.
    """
    pace = result.decode_tokens_per_s
    parts = [] if pace is None else [f"{pace:.1f} tokens/s"]
    if drafts and (free := free_tokens(result.stats)):
        parts.append(free)
    parts += remarks(result, end=end)
    used = result.num_prompt_tokens + len(result.token_ids)
    if used >= _FULL_FROM * context:
        parts.append(_gauge(used, context))
    return " \u00b7 ".join(parts)


def print_drafts(drafts: "Text", rest: str) -> None:
    """Print on stderr what a reply was made of, with its tints, before the rest of its line."""
    from rich.console import Console  # 0.1 s that --help must not pay
    from rich.text import Text

    line = Text(style="dim").append_text(drafts)
    if rest:
        line.append(f" \u00b7 {rest}")
    Console(stderr=True, highlight=False).print(line)


def _gauge(used: int, context: int) -> str:
    share = min(1.0, used / context)
    full = int(share * _CELLS)
    bar = "\u2588" * full + "\u2591" * (_CELLS - full)
    return f"context {bar} {share:.0%} full"
