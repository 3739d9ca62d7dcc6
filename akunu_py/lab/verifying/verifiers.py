"""Verifiers: rules by which a target's probabilities decide over a draft.

The rule is `akunu_py.decoding.verify.verify_match`, on integers: the target chooses with its keyed
noise and a draft is compared with its choices, so that text is the same with and without drafting.
The verifiers here are exceptions one asks for by name. `RejectionVerifier` accepts more of drafts
that were drawn with noise of their own; its output follows the target's law but is another text.
With lenience below 1, and in `LenientGreedyVerifier`, not even the law is the target's.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from akunu_py.decode_stats import Origin
from akunu_py.decoding.verifier import Verifier
from akunu_py.errors import ConfigError, ContractError
from akunu_py.lab.verifying.chance import Chance, KeyedChance
from akunu_py.lab.verifying.draft_law import DraftLaw
from akunu_py.lab.verifying.law_loop import decode_by_law, law_budget
from akunu_py.lab.verifying.rejection import (
    Probabilities,
    Rows,
    accept_probability,
    distribution,
    residual,
    residual_without,
)
from akunu_py.lab.verifying.verdict import Trial, Verdict
from akunu_py.types import Draft, GenerationConfig, Verification, VerificationKind


class RejectionVerifier:
    """Rejection sampling over chains and trees (see `akunu_py.lab.verifying.rejection`).

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
        """Walk down the accepted draws; see `LawVerifier.verify`."""
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
        """Walk down the accepted tokens; see `LawVerifier.verify`."""
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


def rejection(config: GenerationConfig, seed: int) -> Verifier:
    """Return rejection sampling for a reply; `seed` is that of the verifier's own choices."""
    rule = RejectionVerifier(
        KeyedChance(seed), lenience=config.lenience, adjust=config.adjust_residual
    )
    return Verifier(partial(decode_by_law, rule=rule), partial(law_budget, rule=rule), config)


def lenient_greedy(config: GenerationConfig, seed: int) -> Verifier:  # noqa: ARG001 - no choices
    """Return lenient greedy decoding for a reply."""
    rule = LenientGreedyVerifier(config.lenience)
    # Lenience goes by how likely tokens are, not by which is likeliest: rows at temperature 1.
    sampling = replace(config.without_filters(), temperature=1.0, lenience=1.0)
    return Verifier(partial(decode_by_law, rule=rule), partial(law_budget, rule=rule), sampling)


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
