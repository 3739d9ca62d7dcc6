"""The optional part of a trace line: token ids, and the steps that made them.

A file that contradicts itself is refused: together the steps must give the token ids.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from akunu_lab.study.values import Count
from akunu_py.api import ConfigError, Row

Share = Annotated[float, Meta(ge=0, le=1 + 1e-5)]
"""A number from 0 to 1; sums of float32 may be slightly above."""


class TracedToken(Row, frozen=True):
    """A token of a draft; its `parent` is -1 for the last token before the draft."""

    token: Count
    parent: Annotated[int, Meta(ge=-1)]
    accepted: bool | UnsetType = UNSET
    confidence: Share | UnsetType = UNSET
    p: Share | UnsetType = UNSET
    q: Share | UnsetType = UNSET
    uniform: Share | UnsetType = UNSET
    source: str | UnsetType = UNSET


class TraceStep(Row, frozen=True):
    """One step: a draft, its accepted tokens, and the last token."""

    position: Count
    source: str
    match_length: Count
    drafted: tuple[TracedToken, ...]
    accepted: Count
    token: Count
    kind: Literal["bonus", "recovered"]
    origin: Literal["target", "residual"]
    entropy: Share | UnsetType = UNSET
    gamma: Count | UnsetType = UNSET
    tree: Any = UNSET
    """Written by earlier versions, and ignored."""


def wrong(field: str, message: str) -> ConfigError:
    """Return the error of a field of a line, as `Row.from_line` words it."""
    return ConfigError(f"field {field}: {message}")


def check_steps(
    steps: Sequence[TraceStep], prompt_ids: Sequence[int], token_ids: Sequence[int]
) -> None:
    """Check that the steps together give the token ids; raises ConfigError if they do not."""
    if not prompt_ids or not token_ids:
        raise wrong("steps", "needs token_ids and prompt_ids to be steps of")
    ids: list[int] = []
    for number, step in enumerate(steps):
        name = f"steps[{number}]"
        accepted = _accepted(name, step)
        if len(ids) >= len(token_ids):
            raise wrong(name, "comes after the last of the token ids")
        before = len(prompt_ids) + len(ids)
        if step.position != before:
            raise wrong(
                f"{name}.position", f"is {step.position}; the tokens before it are {before}"
            )
        ids += (*accepted, step.token)
    # A stop text or an end-of-generation id may cut the last step short.
    if ids[: len(token_ids)] != list(token_ids):
        raise wrong("steps", "do not put token_ids together")


def _accepted(name: str, step: TraceStep) -> list[int]:
    """Return the tokens that a step accepted, checked by themselves."""
    accepted: list[int] = []
    last = -1
    for place, drafted in enumerate(step.drafted):
        where = f"{name}.drafted[{place}]"
        if drafted.parent >= place:
            raise wrong(f"{where}.parent", f"is {drafted.parent}; parents come first")
        if drafted.accepted is True:
            if drafted.parent != last:
                raise wrong(f"{where}.accepted", "is true of a token that is on no path")
            accepted.append(drafted.token)
            last = place
    if step.accepted != len(accepted):
        raise wrong(
            f"{name}.accepted", f"is {step.accepted} where {len(accepted)} tokens are accepted"
        )
    return accepted
