"""Beam search, plain and speculative, over log-probabilities.

A hypothesis is scored by the sum of its tokens' log-probabilities. Each step extends all live ones
by every token and keeps the `width` best of all, ended ones among them: top_w over whole
hypotheses.

Speculative beam search (Leviathan et al. 2023, arXiv:2211.17192, appendix A.4): a cheaper model
searches ahead with a width u >= w; one pass of the target then has the rows of all hypotheses it
came upon. A step of the search needs no pass of its own while the target's best w lie among those
u; the step after which they do not was still made with the target's own rows. So what is found is
that of the plain search, to the last bit of the scores, as far as a row does not depend on what is
in the pass.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from akunu_py.errors import ConfigError, ContractError


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Tokens behind the prompt, the sum of their log-probabilities, whether the last ends them."""

    tokens: tuple[int, ...]
    log_probability: float
    ended: bool


class BeamModel(Protocol):
    """A model over one prompt, asked for several continuations at once."""

    def log_probabilities(self, continuations: Sequence[tuple[int, ...]]) -> NDArray[np.floating]:
        """Return the next token's log-probabilities after each continuation, [n, vocabulary].

        One pass: continuations that begin alike share rows. -inf is a token that cannot come.
        """


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """What a search found and took.

    Attributes:
        hypotheses: best first; of equals, the extension of the better one, then the lower id.
        steps: of the search, each a token.
        passes: of the model; of the target, where another one searched ahead.
        rows: continuations that these passes were asked for, in all.
        draft_steps: searched ahead by the draft; `kept_draft_steps` of them needed no pass.

    """

    hypotheses: tuple[Hypothesis, ...]
    steps: int
    passes: int
    rows: int
    draft_steps: int = 0

    @property
    def kept_draft_steps(self) -> int:
        """Return how many steps of the draft had the best hypotheses among theirs."""
        return self.steps - self.passes


def beam_search(
    model: BeamModel, *, width: int, max_tokens: int, end_ids: Collection[int] = ()
) -> BeamSearch:
    """Return the `width` best hypotheses of at most `max_tokens` tokens that the beam comes upon.

    Raises ConfigError for a width or a number of tokens below 1, ContractError for rows that do
    not fit.
    """
    return _search(model, None, width=width, max_tokens=max_tokens, end_ids=end_ids)


def speculative_beam_search(
    model: BeamModel,
    draft: BeamModel,
    *,
    width: int,
    draft_width: int,
    num_draft_steps: int,
    max_tokens: int,
    end_ids: Collection[int] = (),
) -> BeamSearch:
    """Return what `beam_search` does, in fewer passes of the model where `draft` searches alike.

    Before each pass `draft` searches up to `num_draft_steps` steps ahead with `draft_width`. Raises
    ConfigError for a draft width below the width, or no draft steps, and as `beam_search` does.
    """
    if draft_width < width:
        raise ConfigError(f"draft_width is {draft_width}; give the width {width} or more")
    if num_draft_steps < 1:
        raise ConfigError(f"num_draft_steps is {num_draft_steps}; give 1 or more")
    return _search(
        model,
        draft,
        width=width,
        max_tokens=max_tokens,
        end_ids=end_ids,
        draft_width=draft_width,
        num_draft_steps=num_draft_steps,
    )


def _search(
    model: BeamModel,
    draft: BeamModel | None,
    *,
    width: int,
    max_tokens: int,
    end_ids: Collection[int],
    draft_width: int = 0,
    num_draft_steps: int = 0,
) -> BeamSearch:
    if width < 1:
        raise ConfigError(f"width is {width}; give 1 or more")
    if max_tokens < 1:
        raise ConfigError(f"max_tokens is {max_tokens}; give 1 or more")
    beam = [Hypothesis((), 0.0, ended=False)]
    steps = passes = num_rows = draft_steps = 0
    while steps < max_tokens and (asked := _live(beam)):
        if draft is not None:
            ahead = beam
            for _ in range(min(num_draft_steps, max_tokens - steps - 1)):
                live = _live(ahead)
                if not live:
                    break
                ahead = _extended(ahead, _rows(draft, live), draft_width, end_ids)
                asked += _live(ahead)
                draft_steps += 1
        rows = _rows(model, asked)
        passes += 1
        num_rows += len(asked)
        while steps < max_tokens and (live := _live(beam)) and rows.keys() >= set(live):
            beam = _extended(beam, rows, width, end_ids)
            steps += 1
    return BeamSearch(tuple(beam), steps, passes, num_rows, draft_steps)


def _live(beam: Sequence[Hypothesis]) -> list[tuple[int, ...]]:
    return [hypothesis.tokens for hypothesis in beam if not hypothesis.ended]


def _rows(
    model: BeamModel, continuations: Sequence[tuple[int, ...]]
) -> dict[tuple[int, ...], NDArray[np.floating]]:
    rows = model.log_probabilities(continuations)
    if rows.ndim != 2 or len(rows) != len(continuations) or np.isnan(rows).any():
        raise ContractError(f"rows of {len(continuations)} continuations are {rows.shape}, or NaN")
    return dict(zip(continuations, rows, strict=True))


def _extended(
    beam: Sequence[Hypothesis],
    rows: dict[tuple[int, ...], NDArray[np.floating]],
    width: int,
    end_ids: Collection[int],
) -> list[Hypothesis]:
    """Return the best `width` of ended hypotheses and extensions of live ones, best first."""
    found: list[Hypothesis] = []
    for hypothesis in beam:
        if hypothesis.ended:
            found.append(hypothesis)
            continue
        row = rows[hypothesis.tokens]
        # No more than `width` extensions of one can be among the best.
        for token in _largest(row, width):
            if row[token] > -np.inf:
                score = hypothesis.log_probability + float(row[token])
                tokens = (*hypothesis.tokens, token)
                found.append(Hypothesis(tokens, score, token in end_ids))
    if not found:
        raise ContractError("no token can come after any hypothesis")
    # Stable: equals stay in the order of what they extend.
    return sorted(found, key=lambda hypothesis: -hypothesis.log_probability)[:width]


def _largest(row: NDArray[np.floating], count: int) -> list[int]:
    """Return the places of the `count` largest, best first; of equals the lowest."""
    if count < row.size:
        edge = np.partition(row, row.size - count)[row.size - count]
        places = np.flatnonzero(row >= edge)
    else:
        places = np.arange(row.size)
    order = np.argsort(-row[places], kind="stable")
    return [int(place) for place in places[order[:count]]]
