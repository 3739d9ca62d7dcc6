"""What speculative decoding should bring: closed formulas to hold measurements against.

Numbers of theorems, tables and appendices are those of Leviathan et al. 2023, "Fast Inference from
Transformers via Speculative Decoding" (arXiv:2211.17192). `alpha` is the probability that a drafted
token is accepted, the same for all tokens and independent of the others; `num_draft_tokens` is
their gamma; costs are those of one step of the drafter, in steps of the target.

The formulas take a pass over several rows to cost what a pass over one does. Where it does not, use
`akunu_py.decoding.budget`, which measures; `Roofline` says from how many rows on it cannot.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from akunu_py.errors import ConfigError

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
    """Return the tokens a pass emits: (1 - a^(g+1)) / (1 - a), g + 1 at a = 1 (equation 1).

    Raises ConfigError for an alpha outside [0, 1] or a negative number of tokens, as do all
    functions here.
    """
    _check(alpha, num_draft_tokens)
    return 1.0 + expected_accepted(alpha, num_draft_tokens)


def expected_accepted(alpha: float, num_draft_tokens: int) -> float:
    """Return the drafted tokens a pass accepts: a (1 - a^g) / (1 - a), g at a = 1."""
    _check(alpha, num_draft_tokens)
    if alpha in (0.0, 1.0):
        return alpha * num_draft_tokens
    # 1 - a^g without cancellation where alpha is near 1.
    return alpha * -math.expm1(num_draft_tokens * math.log(alpha)) / (1 - alpha)


def walltime_factor(alpha: float, num_draft_tokens: int, draft_cost: float) -> float:
    """Return plain decoding's time over that of drafting (theorem 3.8).

    `draft_cost` is their c: the time of a step of the drafter over that of one of the target.
    """
    _check(alpha, num_draft_tokens, draft_cost)
    return expected_tokens(alpha, num_draft_tokens) / (num_draft_tokens * draft_cost + 1)


def operations_factor(alpha: float, num_draft_tokens: int, draft_operations: float) -> float:
    """Return the arithmetic operations over those of plain decoding, at least 1 (theorem 3.11).

    `draft_operations` is their c-hat: the drafter's operations a token over the target's.
    """
    _check(alpha, num_draft_tokens, draft_operations)
    operations = num_draft_tokens * draft_operations + num_draft_tokens + 1
    return operations / expected_tokens(alpha, num_draft_tokens)


def memory_access_factor(alpha: float, num_draft_tokens: int) -> float:
    """Return how many times fewer reads of the target's weights and cache there are (section 3.4).

    They are read once a pass, so this is `expected_tokens`.
    """
    return expected_tokens(alpha, num_draft_tokens)


def oracle_bound(alpha: float) -> float:
    """Return the tokens a pass emits if each draft ends just before its first rejection.

    1 / (1 - a), infinite at a = 1 (section 3.5): what no rule for the length can exceed.
    """
    _check(alpha)
    return 1 / (1 - alpha) if alpha < 1 else math.inf


def guaranteed_factor(alpha: float, draft_cost: float) -> float | None:
    """Return the walltime factor that is reached at least: (1 + a) / (1 + c) (corollary 3.9).

    None where alpha does not exceed the cost: then no number of drafted tokens pays.
    """
    _check(alpha, cost=draft_cost)
    return (1 + alpha) / (1 + draft_cost) if alpha > draft_cost else None


def best_num_draft_tokens(alpha: float, draft_cost: float, most: int = 64) -> int:
    """Return the number of drafted tokens with the largest walltime factor, 0 to `most`.

    Of equals the smallest (section 3.5). Expected tokens are concave in their number and time is
    linear, so their ratio rises and then falls: the search ends at the first one that is no better.
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

    At lenience 1 that is theorem 3.5, its mean over positions alpha (corollary 3.6); below, it is
    appendix A.5's. `p` and `q` are distributions, float64 [vocab].
    """
    _check_lenience(lenience)
    return float(np.minimum(p / lenience, q).sum())


def match_acceptance(p: Probabilities, q: Probabilities) -> float:
    """Return the probability that independent draws from p and q agree: sum p q.

    What verifying by equality accepts of a draft drawn with noise of its own: never more than
    `acceptance`.
    """
    return float((p * q).sum())


def coupled_acceptance(p: Probabilities, q: Probabilities) -> float:
    """Return the probability that draws from p and q by the same Gumbel noise agree.

    The sum over i of 1 / sum_k max(p_k / p_i, q_k / q_i), for i with p_i and q_i above 0
    (Daliri et al. 2024, "Coupling without communication and drafter-invariant speculative
    decoding", arXiv:2408.07978). Of the two ratios the first is the larger one where
    p_k / q_k >= p_i / q_i: with tokens in the order of p / q each sum is two partial sums.
    """
    both = (p > 0) & (q > 0)
    p_both, q_both = p[both], q[both]
    # By logarithms: a ratio of float64 may overflow.
    order = np.argsort(np.log(p_both) - np.log(q_both))
    p_both, q_both = p_both[order], q_both[order]
    p_from = np.cumsum(p_both[::-1])[::-1] + p[~both].sum()
    q_below = np.cumsum(q_both) - q_both + q[~both].sum()
    with np.errstate(over="ignore"):  # infinity is right: such a token is never agreed on
        return float((1 / (p_from / p_both + q_below / q_both)).sum())


def rejection_sampling_acceptance(p: Probabilities, q: Probabilities) -> float:
    """Return what classic rejection sampling, tried once, accepts: min q / p over p > 0.

    A draw x of q is accepted with p(x) / (M q(x)), M = max p / q, and p itself drawn from otherwise
    (appendix A.2): as exact as speculative sampling and never better.
    """
    drawn = p > 0
    return min(1.0, float((q[drawn] / p[drawn]).min()))


def _check_lenience(lenience: float) -> None:
    if not 0 < lenience <= 1:
        raise ConfigError(f"lenience is {lenience!r}; give a number above 0, at most 1 (1 is none)")


@dataclass(frozen=True, slots=True)
class Roofline:
    """The time of a pass over several rows: reading the weights, or computing, whichever is longer.

    max(P bytes / bandwidth, 2 P rows / rate), two operations a parameter and row (Williams et al.
    2009, "Roofline"). Reads of the cache are left out. `akunu_py.decoding.pass_costs.roofline`, the
    prior of measured costs, adds the two terms instead, since kernels for few rows overlap them
    little.

    Attributes:
        parameters: of the target (of those a token uses, in a mixture of experts).
        bytes_per_parameter: as stored; 2 for float16, about 0.56 for 4 bits with scales.
        bandwidth: of memory, bytes a second.
        rate: of arithmetic, operations a second.

    Raises ConfigError for numbers that are not positive and finite.

    """

    parameters: float
    bytes_per_parameter: float
    bandwidth: float
    rate: float

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ConfigError(f"{name} of a roofline is {value!r}; give a positive number")

    def pass_s(self, rows: int) -> float:
        """Return the seconds of a pass over `rows` rows."""
        read_s = self.parameters * self.bytes_per_parameter / self.bandwidth
        return max(read_s, 2 * self.parameters * rows / self.rate)

    def cost(self, rows: int) -> float:
        """Return C(rows): the time of a pass in passes over one row."""
        return self.pass_s(rows) / self.pass_s(1)

    @property
    def crossover_rows(self) -> float:
        """Return how many rows take as long to compute as the weights to read.

        Up to it further rows cost nothing, beyond it each costs as much as the last one. An A100
        (312e12 operations and 1.935e12 bytes a second, float16) has about 161.
        """
        return self.bytes_per_parameter * self.rate / (2 * self.bandwidth)
