"""Beam search, plain and speculative, over log-probabilities.

The score of a hypothesis is the sum of its tokens' log-probabilities. Each step extends all live
hypotheses by every token and keeps the `width` best, including ended ones: top_w over whole
hypotheses.

Speculative beam search (Leviathan et al. 2023, arXiv:2211.17192, appendix A.4): a cheaper model
searches ahead with a width u >= w, and one pass of the target then has the rows of all hypotheses
that it reached. Further steps need no pass of their own as long as the target's best w are among
those u; the first step for which they are not still uses the target's own rows. So the result is
the result of the plain search, to the last bit of the scores, if a row does not depend on the
others in its pass.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from akunu_py.api import ConfigError, ContractError


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Tokens after the prompt, the sum of their log-probabilities, and whether they ended."""

    tokens: tuple[int, ...]
    log_probability: float
    ended: bool


class BeamModel(Protocol):
    """A model over one prompt, asked for several continuations at once."""

    def log_probabilities(self, continuations: Sequence[tuple[int, ...]]) -> NDArray[np.floating]:
        """Return the next token's log-probabilities after each continuation, [n, vocabulary].

        It is one pass: continuations share the rows of a common beginning. -inf is probability 0.
        """


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """Result of a search, and its cost."""

    hypotheses: tuple[Hypothesis, ...]
    """Best first; among equals the extension of the better one, then the lower id."""

    steps: int
    passes: int
    rows: int
    """Continuations that these passes evaluated."""

    draft_steps: int = 0
    """Steps that the draft searched ahead; `kept_draft_steps` of them saved a pass."""

    @property
    def kept_draft_steps(self) -> int:
        """Return the number of draft steps that contained the best hypotheses."""
        return self.steps - self.passes


def beam_search(
    model: BeamModel,
    draft: BeamModel | None = None,
    *,
    width: int,
    max_tokens: int,
    end_ids: Collection[int] = (),
    draft_width: int = 0,
    num_draft_steps: int = 0,
) -> BeamSearch:
    """Return the `width` best hypotheses of at most `max_tokens` tokens in the beam.

    With `draft` the result is the same, in fewer passes if it resembles the model: before each pass
    it searches up to `num_draft_steps` steps ahead with `draft_width`.

    Raises ConfigError for a width or a number of tokens below 1, and with `draft` for a draft width
    below the width or no draft steps; ContractError for rows of a wrong shape.
    """
    if draft is not None and draft_width < width:
        raise ConfigError(f"draft_width is {draft_width}; give the width {width} or more")
    if draft is not None and num_draft_steps < 1:
        raise ConfigError(f"num_draft_steps is {num_draft_steps}; give 1 or more")
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
                ahead = _extend(ahead, _rows(draft, live), draft_width, end_ids)
                asked += _live(ahead)
                draft_steps += 1
        rows = _rows(model, asked)
        passes += 1
        num_rows += len(asked)
        while steps < max_tokens and (live := _live(beam)) and rows.keys() >= set(live):
            beam = _extend(beam, rows, width, end_ids)
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


def _extend(
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
        # At most `width` extensions of a hypothesis can be among the best.
        for token in _largest(row, width):
            if row[token] > -np.inf:
                score = hypothesis.log_probability + float(row[token])
                tokens = (*hypothesis.tokens, token)
                found.append(Hypothesis(tokens, score, token in end_ids))
    if not found:
        raise ContractError("no hypothesis has a possible next token")
    # Stable: equals keep the order of the hypotheses that they extend.
    return sorted(found, key=lambda hypothesis: -hypothesis.log_probability)[:width]


def _largest(row: NDArray[np.floating], count: int) -> list[int]:
    """Return the places of the `count` largest, best first; among equals the lowest."""
    if count < row.size:
        edge = np.partition(row, row.size - count)[row.size - count]
        places = np.flatnonzero(row >= edge)
    else:
        places = np.arange(row.size)
    order = np.argsort(-row[places], kind="stable")
    return [int(place) for place in places[order[:count]]]
