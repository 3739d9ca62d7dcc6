"""Closed formulas for the gain of speculative decoding, to compare measurements with.

Numbers of theorems, tables and appendices refer to Leviathan et al. 2023, "Fast Inference from
Transformers via Speculative Decoding" (arXiv:2211.17192). `alpha` is the probability that a drafted
token is accepted, equal for all tokens and independent of the others. `num_draft_tokens` is their
gamma. Costs are of one step of the drafter, in steps of the target.

The formulas assume that a pass over several rows costs as much as a pass over one. `PassTime` says
up to how many rows this can hold. Beyond it use `akunu_py.decoding.budget`, which measures.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from akunu_py.api import ConfigError

Probabilities = NDArray[np.float64]
"""One distribution, float64 [vocab]."""


def _check(alpha: float, num_draft_tokens: int = 0, cost: float = 0.0) -> None:
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha is {alpha!r}; give a probability, 0 to 1")
    if num_draft_tokens < 0:
        raise ConfigError(f"num_draft_tokens is {num_draft_tokens!r}; give 0 or more")
    if not 0 <= cost < math.inf:
        raise ConfigError(f"a cost is {cost!r}; give steps of the target, 0 or more")


def expected_tokens(alpha: float, num_draft_tokens: int) -> float:
    """Return the expected output of a pass: (1 - a^(g+1)) / (1 - a), g + 1 at a = 1 (equation 1).

    Like all functions here it raises ConfigError for an alpha outside [0, 1] or a negative number
    of tokens.
    """
    _check(alpha, num_draft_tokens)
    return 1.0 + expected_accepted(alpha, num_draft_tokens)


def expected_accepted(alpha: float, num_draft_tokens: int) -> float:
    """Return the expected accepted tokens of a pass: a (1 - a^g) / (1 - a), g at a = 1."""
    _check(alpha, num_draft_tokens)
    if alpha in (0.0, 1.0):
        return alpha * num_draft_tokens
    # 1 - a^g without cancellation where alpha is near 1.
    return alpha * -math.expm1(num_draft_tokens * math.log(alpha)) / (1 - alpha)


def walltime_factor(alpha: float, num_draft_tokens: int, draft_cost: float) -> float:
    """Return the ratio of plain decoding's time to the time with drafts (theorem 3.8).

    `draft_cost` is their c, the time of a step of the drafter in steps of the target.
    """
    _check(alpha, num_draft_tokens, draft_cost)
    return expected_tokens(alpha, num_draft_tokens) / (num_draft_tokens * draft_cost + 1)


def operations_factor(alpha: float, num_draft_tokens: int, draft_operations: float) -> float:
    """Return the ratio of arithmetic operations to plain decoding's, at least 1 (theorem 3.11).

    `draft_operations` is their c-hat, the ratio of the drafter's operations per token to the
    target's.
    """
    _check(alpha, num_draft_tokens, draft_operations)
    operations = num_draft_tokens * draft_operations + num_draft_tokens + 1
    return operations / expected_tokens(alpha, num_draft_tokens)


def memory_access_factor(alpha: float, num_draft_tokens: int) -> float:
    """Return the factor by which reads of the target's weights and cache fall (section 3.4).

    They are read once per pass, so this is `expected_tokens`.
    """
    return expected_tokens(alpha, num_draft_tokens)


def oracle_bound(alpha: float) -> float:
    """Return the expected output of a pass if every draft ends just before its first rejection.

    This is 1 / (1 - a), infinite at a = 1 (section 3.5); no length rule can exceed it.
    """
    _check(alpha)
    return 1 / (1 - alpha) if alpha < 1 else math.inf


def guaranteed_factor(alpha: float, draft_cost: float) -> float | None:
    """Return a guaranteed walltime factor: (1 + a) / (1 + c) (corollary 3.9).

    None if alpha does not exceed the cost: then no number of drafted tokens pays.
    """
    _check(alpha, cost=draft_cost)
    return (1 + alpha) / (1 + draft_cost) if alpha > draft_cost else None


def best_num_draft_tokens(alpha: float, draft_cost: float, most: int = 64) -> int:
    """Return the number of drafted tokens with the largest walltime factor, 0 to `most`.

    Among equals the smallest is returned (section 3.5). Expected tokens are concave in the number
    and time is linear, so their ratio first rises and then falls: the search ends at the first
    number that is not better.
    """
    _check(alpha, most, draft_cost)
    best, factor = 0, 1.0
    while best < most:
        further = walltime_factor(alpha, best + 1, draft_cost)
        if further <= factor:
            break
        best, factor = best + 1, further
    return best


def acceptance(p: Probabilities, q: Probabilities, lenience: float = 1.0) -> float:
    """Return the probability that a draw from q is accepted: sum min(p / l, q).

    At lenience 1 this is theorem 3.5, and its mean over positions is alpha (corollary 3.6). Below 1
    it is the rule of appendix A.5. `p` and `q` are distributions, float64 [vocab].
    """
    _check_lenience(lenience)
    return float(np.minimum(p / lenience, q).sum())


def match_acceptance(p: Probabilities, q: Probabilities) -> float:
    """Return the probability that independent draws from p and q agree: sum p q.

    This is the acceptance of independently drawn drafts that are verified by equality. It never
    exceeds `acceptance`.
    """
    return float((p * q).sum())


def coupled_acceptance(p: Probabilities, q: Probabilities) -> float:
    """Return the probability that draws from p and q with the same Gumbel noise agree.

    This is the sum over i of 1 / sum_k max(p_k / p_i, q_k / q_i), for i with p_i, q_i > 0
    (Daliri et al. 2024, "Coupling without communication and drafter-invariant speculative
    decoding", arXiv:2408.07978). The first ratio is the larger one if
    p_k / q_k >= p_i / q_i, so in the order of p / q each sum consists of two partial sums.
    """
    both = (p > 0) & (q > 0)
    p_both, q_both = p[both], q[both]
    # With logarithms, since a ratio of float64 may overflow.
    order = np.argsort(np.log(p_both) - np.log(q_both))
    p_both, q_both = p_both[order], q_both[order]
    p_from = np.cumsum(p_both[::-1])[::-1] + p[~both].sum()
    q_below = np.cumsum(q_both) - q_both + q[~both].sum()
    with np.errstate(over="ignore"):  # infinity is right: draws never agree on such a token
        return float((1 / (p_from / p_both + q_below / q_both)).sum())


def rejection_sampling_acceptance(p: Probabilities, q: Probabilities) -> float:
    """Return the acceptance of classic rejection sampling, tried once: min q / p over p > 0.

    A draw x from q is accepted with probability p(x) / (M q(x)), M = max p / q; otherwise the token
    is drawn from p (appendix A.2). It is as exact as speculative sampling and never better.
    """
    drawn = p > 0
    return min(1.0, float((q[drawn] / p[drawn]).min()))


def _check_lenience(lenience: float) -> None:
    if not 0 < lenience <= 1:
        raise ConfigError(
            f"lenience is {lenience!r}; give a number above 0, at most 1 (1 is exact)"
        )


@dataclass(frozen=True, slots=True)
class PassTime:
    """The time of a pass over several rows: the longer one of reading weights and computing.

    It is max(P bytes / bandwidth, 2 P rows / rate), with two operations per parameter and row
    (Williams et al. 2009, "Roofline"). Reads of the cache are ignored. The prior of measured costs,
    `akunu_py.decoding.pass_costs.roofline`, adds the two terms, because kernels for few rows hardly
    overlap them.

    Raises ConfigError for numbers that are not positive and finite.
    """

    parameters: float
    """Those that a token uses."""

    bytes_per_parameter: float
    """As stored; 2 for float16, about 0.56 for 4 bits with scales."""

    bandwidth: float
    rate: float

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ConfigError(f"{name} of a roofline is {value!r}; give a positive number")

    def pass_s(self, rows: int) -> float:
        """Return the time of a pass over `rows` rows, in seconds."""
        read_s = self.parameters * self.bytes_per_parameter / self.bandwidth
        return max(read_s, 2 * self.parameters * rows / self.rate)

    def cost(self, rows: int) -> float:
        """Return C(rows), the time of a pass relative to a pass over one row."""
        return self.pass_s(rows) / self.pass_s(1)

    @property
    def crossover_rows(self) -> float:
        """Return the number of rows for which computing takes as long as reading the weights.

        Up to it further rows are free; beyond it each costs the same. For an A100 (312e12
        operations and 1.935e12 bytes per second, float16) it is about 161.
        """
        return self.bytes_per_parameter * self.rate / (2 * self.bandwidth)
