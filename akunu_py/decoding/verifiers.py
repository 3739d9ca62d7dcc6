"""Verifiers: rules by which a target's probabilities decide over a draft.

The rule is `akunu_py.decoding.verify.verify_match`, on integers: the target chooses with its keyed
noise and a draft is compared with its choices, so that text is the same with and without drafting.
The verifiers here are exceptions one asks for by name. `RejectionVerifier` accepts more of drafts
that were drawn with noise of their own; its output follows the target's law but is another text.
With lenience below 1, and in `LenientGreedyVerifier`, not even the law is the target's.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from akunu_py.decode_stats import Origin
from akunu_py.decoding.chance import Chance, KeyedChance
from akunu_py.decoding.draft_law import DraftLaw
from akunu_py.decoding.rejection import (
    Probabilities,
    Rows,
    accept_probability,
    distribution,
    residual,
    residual_without,
)
from akunu_py.errors import ConfigError, ContractError
from akunu_py.types import Draft, GenerationConfig, Target, Verification, VerificationKind


@dataclass(frozen=True, slots=True)
class Trial:
    """One draw that was tried.

    Attributes:
        node: of the draft.
        token: its token.
        position: of the token, counted from the beginning of the prompt.
        p: the target's probability, of what earlier rejections at the position left.
        q: the probability it was drawn with.
        uniform: the number that decided; None where nothing is random.
        accepted: whether it was.

    """

    node: int
    token: int
    position: int
    p: float
    q: float
    uniform: float | None
    accepted: bool

    @property
    def ratio(self) -> float | None:
        """Return p / q; None where q is 0."""
        return self.p / self.q if self.q > 0 else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier decided over a draft, and how it came to it, in the order of the trials."""

    verification: Verification
    trials: tuple[Trial, ...]
    origin: Origin


@runtime_checkable
class DistributionTarget(Target, Protocol):
    """A target that can say how likely each token is, instead of which one it chooses."""

    def distributions(self, last: int, draft: Draft) -> Rows:
        """Return the target's distributions after `last` and after each node, [len + 1, vocab].

        They are what it would draw from: after penalties, filters and temperature. Row 0 follows
        `last`, row i + 1 follows node i. `commit` keeps rows of this pass as of a `choose`.
        """


class Verifier(Protocol):
    """Decides over drafts by probabilities."""

    @property
    def name(self) -> str:
        """Return what traces and statistics call it."""

    @property
    def exact(self) -> bool:
        """Return whether what comes out follows the target's law."""

    @property
    def uses_q(self) -> bool:
        """Return whether it looks at what a draft was drawn from."""

    def verify(self, draft: Draft, law: DraftLaw, rows: Rows, position: int) -> Verdict:
        """Decide over a draft drawn by `law` with the target's distributions [len + 1, vocab].

        `position` is that of the token after the last committed one, from the prompt's beginning.

        Raises ContractError for rows that do not fit or are no distributions.
        """


class RejectionVerifier:
    """Rejection sampling over chains and trees (see `akunu_py.decoding.rejection`).

    At each node the draws that follow it are tried one after another, each as often as it was
    drawn, the residual updated each time; the first one accepted leads on. After the last
    rejection the token is drawn from what is left. For a chain this is algorithm 1 of Leviathan et
    al. 2023 (arXiv:2211.17192), for k draws at one node iterative speculative sampling, for a tree
    the multi-step speculative sampling of SpecInfer (arXiv:2305.09781, algorithm 2).

    `lenience` below 1 accepts with min(1, p / (l q)): no token comes out with more than p / l.
    Without `adjust` p itself takes the place of the residual: for study, since that is no law of
    the target's (tokens that q makes too likely stay so).

    Raises ConfigError for a lenience outside (0, 1].
    """

    uses_q = True

    def __init__(self, chance: Chance, *, lenience: float = 1.0, adjust: bool = True) -> None:
        if not 0 < lenience <= 1:
            raise ConfigError(f"lenience is {lenience!r}; give a number above 0, at most 1")
        self._chance = chance
        self._lenience = lenience
        self._adjust = adjust

    @property
    def name(self) -> str:
        """Return "rejection", or what it is instead."""
        if not self._adjust:
            return "rejection-unadjusted"
        return "rejection" if self.exact else "lenient"

    @property
    def exact(self) -> bool:
        """Return whether what comes out follows the target's law."""
        return self._adjust and self._lenience == 1

    def verify(self, draft: Draft, law: DraftLaw, rows: Rows, position: int) -> Verdict:
        """Walk down the accepted draws; see `Verifier.verify`."""
        _check_rows(draft, rows)
        following = law.by_parent(draft)
        accepted: list[int] = []
        trials: list[Trial] = []
        node = -1
        while True:
            here = position + len(accepted)
            left = distribution(rows[node + 1], "the target")
            draws = following.get(node, [])
            tried = self._try_draws(draft, law, draws, left, here)
            trials += tried.trials
            if tried.accepted is None:
                break
            node = tried.accepted
            accepted.append(node)
        token = self._chance.token(tried.left, here)
        kind: VerificationKind = "recovered" if draws else "bonus"
        verification = Verification(tuple(accepted), token, kind)
        return Verdict(verification, tuple(trials), tried.origin)

    def _try_draws(
        self,
        draft: Draft,
        law: DraftLaw,
        draws: list[tuple[int, int]],
        left: Probabilities,
        position: int,
    ) -> "_Tried":
        """Try the draws after one node, whose target distribution is `left`."""
        untried = list(draws)
        trials: list[Trial] = []
        origin: Origin = "target"
        for attempt in range(len(draws)):
            several = not law.ordered and len(untried) > 1
            index = self._chance.index(len(untried), position, attempt) if several else 0
            node, row = untried.pop(index)
            token = draft.tokens[node]
            _check_token(draft, token, len(left))
            q_row = None if law.rows is None else distribution(law.rows[row], "the draft")
            if q_row is not None and len(q_row) != len(left):
                raise ContractError(
                    f"the drafter {draft.source!r} has {len(q_row)} probabilities where the target "
                    f"has {len(left)}; both must have one vocabulary"
                )
            p, q = float(left[token]), 1.0 if q_row is None else float(q_row[token])
            probability = accept_probability(p, q, self._lenience)
            taken, uniform = self._chance.accepts(probability, position, attempt)
            trials.append(Trial(node, token, position, p, q, uniform, taken))
            if taken:
                return _Tried(node, left, origin, trials)
            # A token that q cannot draw says nothing of q: p stays what it is.
            if self._adjust and q > 0:
                left = residual_without(left, token) if q_row is None else residual(left, q_row)
                origin = "residual"
        return _Tried(None, left, origin, trials)


@dataclass(frozen=True, slots=True)
class _Tried:
    """The draws after one node: which was accepted, and what is left to draw from if none was."""

    accepted: int | None
    left: Probabilities
    origin: Origin
    trials: list[Trial]


class LenientGreedyVerifier:
    """Greedy decoding that takes drafted tokens which are nearly the likeliest ones.

    A drafted token is accepted when p(x) >= l max p, the likeliest such sibling of several, the
    first of equals; the token that ends a step is the likeliest one. The target's distributions
    are those before the likeliest token is singled out: at temperature 1. Leviathan et al. 2023,
    appendix A.5, for temperature 0; the inequality is printed there the other way round.

    Raises ConfigError for a lenience outside (0, 1].
    """

    name = "lenient-greedy"
    uses_q = False

    def __init__(self, lenience: float) -> None:
        if not 0 < lenience <= 1:
            raise ConfigError(f"lenience is {lenience!r}; give a number above 0, at most 1")
        self._lenience = lenience

    @property
    def exact(self) -> bool:
        """Return whether it is greedy decoding: at lenience 1, but for ties."""
        return self._lenience == 1

    def verify(self, draft: Draft, law: DraftLaw, rows: Rows, position: int) -> Verdict:
        """Walk down the accepted tokens; see `Verifier.verify`."""
        _check_rows(draft, rows)
        following = law.by_parent(draft)
        accepted: list[int] = []
        trials: list[Trial] = []
        node = -1
        while True:
            p = distribution(rows[node + 1], "the target")
            best = int(p.argmax())
            children = dict.fromkeys(child for child, _ in following.get(node, []))
            for child in children:
                _check_token(draft, draft.tokens[child], len(p))
            if not children:
                break
            child = max(children, key=lambda child: p[draft.tokens[child]])
            token = draft.tokens[child]
            taken = bool(p[token] >= self._lenience * p[best])
            here = position + len(accepted)
            trials.append(Trial(child, token, here, float(p[token]), 1.0, None, taken))
            if not taken:
                break
            accepted.append(child)
            node = child
        kind: VerificationKind = "recovered" if children else "bonus"
        return Verdict(Verification(tuple(accepted), best, kind), tuple(trials), "target")


def make_verifier(config: GenerationConfig, seed: int) -> Verifier | None:
    """Return what decides over the drafts of a reply; None: comparison with the target's choices.

    `seed` is that of the verifier's own choices.
    """
    if config.temperature == 0 and config.lenience < 1:
        return LenientGreedyVerifier(config.lenience)
    if config.draft_sampling == "coupled":
        return None
    return RejectionVerifier(
        KeyedChance(seed), lenience=config.lenience, adjust=config.adjust_residual
    )


def _check_rows(draft: Draft, rows: Rows) -> None:
    if rows.ndim != 2 or len(rows) != len(draft) + 1 or not np.issubdtype(rows.dtype, np.floating):
        raise ContractError(
            f"the target gave distributions of shape {rows.shape} for a draft of {len(draft)} "
            "tokens; one row is needed for each, and one before them"
        )


def _check_token(draft: Draft, token: int, vocabulary_size: int) -> None:
    if not 0 <= token < vocabulary_size:
        raise ContractError(
            f"the drafter {draft.source!r} drafted the token {token}; ids go from 0 to "
            f"{vocabulary_size - 1}"
        )
