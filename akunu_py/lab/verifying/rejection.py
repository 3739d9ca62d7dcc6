"""Rejection sampling at one position: what is accepted, and what is left to draw from.

A token x drawn from q is accepted with min(1, p(x) / q(x)); after a rejection the next one is drawn
from the residual norm(max(0, p - q)). The token that comes out follows p, whatever q is (Leviathan
et al. 2023, arXiv:2211.17192, appendix A.1; Chen et al. 2023, arXiv:2302.01318, theorem 1). p and q
are what tokens are really drawn from: after penalties, filters and temperature.

With several draws at a position the residual takes the place of p for the next one, and so on: what
comes out still follows p (multi-step speculative sampling; Miao et al. 2023, "SpecInfer",
arXiv:2305.09781, theorem 4.2).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.errors import ContractError

Probabilities = NDArray[np.float64]
"""One distribution, float64 [vocab]."""

Rows = NDArray[np.floating[Any]]
"""Distributions, [n, vocab], of any width; each adds up to about 1."""


def distribution(row: NDArray[np.floating[Any]], whose: str) -> Probabilities:
    """Return a row [vocab] in float64, adding up to 1 as closely as that can.

    What float32 rounded away would otherwise look like residual mass. `whose` names it in errors.

    Raises ContractError for a row that is no distribution: NaN, infinite or negative entries, or
    none above 0.
    """
    wide = row.astype(np.float64)
    total = float(wide.sum())
    if not 0 < total < np.inf or float(wide.min()) < 0:
        raise ContractError(
            f"the probabilities of {whose} add up to {total}; they must be finite, none negative "
            "and one positive"
        )
    wide /= total
    return wide


def softmax(logits: NDArray[np.floating[Any]]) -> Probabilities:
    """Return the distribution of logits [vocab], float64.

    -inf is probability 0. Where a logit is +inf (a float16 that overflowed) those share all of it.

    Raises ContractError for NaN, and where every logit is -inf.
    """
    wide = logits.astype(np.float64)
    top = float(wide.max())
    if top == np.inf:
        wide = np.where(wide == np.inf, 0.0, -np.inf)
    elif top == -np.inf or np.isnan(top):
        raise ContractError(f"a row of logits has the maximum {top}; no token can be chosen")
    else:
        wide -= top
    np.exp(wide, out=wide)
    wide /= wide.sum()
    return wide


def accept_probability(p: float, q: float, lenience: float = 1.0) -> float:
    """Return min(1, p / (l q)): how likely a token drawn with probability q is accepted.

    `lenience` l is 1 for an exact law. Below, more is accepted, and no token comes out with more
    than p / l (Leviathan et al. 2023, appendix A.5). 0 where q is 0: such a token was not drawn
    from q, and taking it would follow whatever it was drawn from.
    """
    if q <= 0:
        return 0.0
    bound = lenience * q
    # Compared before divided: q may be so small that the ratio overflows.
    return 1.0 if p >= bound else p / bound


def residual(p: Probabilities, q: Probabilities) -> Probabilities:
    """Return norm(max(0, p - q)), float64 [vocab]; p where nothing is left.

    Nothing is left where p is nowhere above q, so where they are equal: a rejection then has a
    probability of rounding errors.
    """
    left = np.maximum(p - q, 0.0)
    total = float(left.sum())
    if total <= 0:
        return p
    left /= total
    return left


def residual_without(p: Probabilities, token: int) -> Probabilities:
    """Return the residual for a q that is all on one token: p without it; p if it was all."""
    left = p.copy()
    left[token] = 0.0
    total = float(left.sum())
    if total <= 0:
        return p
    left /= total
    return left
