"""Rejection sampling at one position: acceptance and residual.

A token x drawn from q is accepted with probability min(1, p(x) / q(x)). After a rejection the token
is drawn from the residual norm(max(0, p - q)). The result follows p, whatever q is (Leviathan et
al. 2023, arXiv:2211.17192, appendix A.1; Chen et al. 2023, arXiv:2302.01318, theorem 1). p and q
are the distributions really drawn from: after penalties, filters and temperature.

With several draws at a position the residual replaces p for the next draw, and so on; the result
still follows p (multi-step speculative sampling; Miao et al. 2023, "SpecInfer", arXiv:2305.09781,
theorem 4.2).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from akunu_py.api import ContractError

Probabilities = NDArray[np.float64]
"""One distribution, float64 [vocab]."""

Rows = NDArray[np.floating[Any]]
"""Distributions [n, vocab] of any float type; each sums to about 1."""


def distribution(row: NDArray[np.floating[Any]], whose: str) -> Probabilities:
    """Return a row [vocab] in float64, normalised to sum 1.

    Otherwise rounding in float32 would look like residual mass. `whose` names the row in errors.

    Raises ContractError for a row with NaN, infinite or negative entries, or without a positive
    one.
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

    -inf is probability 0. If logits are +inf (float16 overflow), these share the probability.

    Raises ContractError for NaN, and if every logit is -inf.
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
    """Return min(1, p / (l q)), the acceptance probability of a token drawn with probability q.

    With `lenience` l = 1 the result follows p exactly. Below 1 more is accepted, and no token gets
    more than p / l (Leviathan et al. 2023, appendix A.5). For q = 0 the result is 0: such a token
    was not drawn from q.
    """
    if q <= 0:
        return 0.0
    bound = lenience * q
    # Compared before dividing, because the ratio may overflow for a tiny q.
    return 1.0 if p >= bound else p / bound


def residual(p: Probabilities, q: Probabilities) -> Probabilities:
    """Return norm(max(0, p - q)), float64 [vocab]; p if nothing is left.

    Nothing is left if p equals q; a rejection then happens only through rounding errors.
    """
    left = np.maximum(p - q, 0.0)
    total = float(left.sum())
    if total <= 0:
        return p
    left /= total
    return left


def residual_without(p: Probabilities, token: int) -> Probabilities:
    """Return the residual for a one-hot q: p without that token, or p if nothing is left."""
    left = p.copy()
    left[token] = 0.0
    total = float(left.sum())
    if total <= 0:
        return p
    left /= total
    return left
