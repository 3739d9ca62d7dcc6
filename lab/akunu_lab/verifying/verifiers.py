"""Verifiers by probability: rejection sampling and lenient greedy decoding.

By default `akunu_py.decoding.loop.verify_match` compares a draft with the target's own choices,
which gives the same text with and without drafting. The verifiers here are chosen by name.
`RejectionVerifier` accepts more of independently drawn drafts; its output follows the target's
distribution but is another text. With lenience below 1, and with `LenientGreedyVerifier`, the
distribution differs, too.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import numpy as np

from akunu_lab.verifying.chance import Chance, KeyedChance
from akunu_lab.verifying.draft_law import DraftLaw
from akunu_lab.verifying.law_loop import decode_by_law, law_budget
from akunu_lab.verifying.rejection import (
    Probabilities,
    Rows,
    accept_probability,
    distribution,
    residual,
    residual_without,
)
from akunu_lab.verifying.verdict import LawVerifier, Origin, Trial, Verdict
from akunu_py.api import (
    ConfigError,
    ContractError,
    Draft,
    GenerationConfig,
    Number,
    Verifier,
    VerifierOptions,
    option,
)

DraftSampling = Literal["coupled", "rejection"]


class RejectionVerifier:
    """Rejection sampling over chains and trees (see `akunu_lab.verifying.rejection`).

    At each node its draws are tried one after another, each as often as it was drawn, and every
    rejection updates the residual. The walk goes on from the first accepted draw. After the last
    rejection the token is drawn from the residual. For a chain this is algorithm 1 of Leviathan et
    al. 2023 (arXiv:2211.17192), for k draws at one node iterative speculative sampling, for a tree
    the multi-step speculative sampling of SpecInfer (arXiv:2305.09781, algorithm 2).

    `lenience` l below 1 accepts with min(1, p / (l q)): no token gets more than p / l. Without
    `adjust` p replaces the residual. This is for study: the output does not follow p then, since
    tokens that q makes too likely stay so.

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
        if not self._adjust:
            return "rejection-unadjusted"
        return "rejection" if self.exact else "lenient"

    @property
    def exact(self) -> bool:
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
        kind: Literal["bonus", "recovered"] = "recovered" if draws else "bonus"
        return Verdict(tuple(accepted), token, kind, tuple(trials), tried.origin)

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
            # A token that q cannot draw carries no information: p stays as it is.
            if self._adjust and q > 0:
                left = residual_without(left, token) if q_row is None else residual(left, q_row)
                origin = "residual"
        return _Tried(None, left, origin, trials)


@dataclass(frozen=True, slots=True)
class _Tried:
    """Result of the draws after a node: the accepted one, or the residual if there is none."""

    accepted: int | None
    left: Probabilities
    origin: Origin
    trials: list[Trial]


class LenientGreedyVerifier:
    """Greedy decoding that also accepts drafted tokens that are nearly the likeliest.

    A drafted token is accepted if p(x) >= l max p; among siblings the likeliest one is taken, and
    the first among equals. The token that ends a step is the likeliest one. The target's
    distributions are at temperature 1. This is appendix A.5 of Leviathan et al. 2023 for
    temperature 0; the inequality is printed there the other way round.

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
        """Return whether this is greedy decoding: at lenience 1, except for ties."""
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
        kind: Literal["bonus", "recovered"] = "recovered" if children else "bonus"
        return Verdict(tuple(accepted), best, kind, tuple(trials), "target")


@dataclass(frozen=True, slots=True, kw_only=True)
class ByProbability(VerifierOptions):
    """Acceptance by probability, as an entry point "akunu.verifiers"."""

    draft_sampling: DraftSampling = option(
        "coupled",
        get_args(DraftSampling),
        "Compare drafts with the model's own choices, which keeps the text of plain decoding, or "
        "accept them by probability, which gives another text of the same distribution.",
    )
    """"rejection" is Leviathan et al. 2023, arXiv:2211.17192."""
    lenience: float = option(
        1.0,
        Number(0, 1, "a number above 0, at most 1 (1 is exact)", excluded=0),
        "Below 1 replies are not exact: drafted tokens come up to 1/L times as often as they "
        "should, at temperature 0 in place of tokens up to 1/L times as likely.",
        metavar="L",
    )
    """A drafted token is accepted with probability min(1, p / (l q)), a form of rejection; at
    temperature 0 if p >= l max p, with p at temperature 1 (Leviathan et al. 2023, appendix A.5)."""
    adjust: bool = option(
        True,
        bool,
        "Draw from the residual after a rejection, or, for study and not exact, from p.",
    )

    @property
    def exactness(self) -> Literal["stream", "distribution", "none"]:
        if self.lenience < 1 or not self.adjust:
            return "none"
        return "distribution" if self.independent else "stream"

    @property
    def independent(self) -> bool:
        return self.draft_sampling == "rejection"

    def check(self, config: GenerationConfig) -> None:
        if self.lenience < 1 and config.temperature > 0 and not self.independent:
            raise ConfigError(
                f"lenience {self.lenience:g} at temperature {config.temperature:g} is a form of "
                "rejection sampling; set draft_sampling to 'rejection', or temperature to 0"
            )
        if not self.adjust and not (self.independent and config.temperature > 0):
            raise ConfigError(
                "without adjust nothing changes but rejection sampling; set draft_sampling to "
                "'rejection' and a temperature above 0"
            )

    def make(self, config: GenerationConfig, seed: int) -> Verifier | None:
        rule: LawVerifier
        if self.lenience < 1 and config.temperature == 0:
            rule = LenientGreedyVerifier(self.lenience)
            # Lenience compares probabilities, which temperature 0 would hide: rows at temperature
            # 1.
            config = replace(config.without_filters(), temperature=1.0, draft_options={})
        elif self.independent:
            rule = RejectionVerifier(KeyedChance(seed), lenience=self.lenience, adjust=self.adjust)
        else:
            return None
        return Verifier(partial(decode_by_law, rule=rule), partial(law_budget, rule=rule), config)


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
