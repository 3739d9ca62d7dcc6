"""Acceptance at each position of a text: the probability that one drafted token is accepted.

alpha = E[sum_x min(p(x), q(x))] over positions (Leviathan et al. 2023, arXiv:2211.17192, corollary
3.6), p and q after all transforms. It is computed from both distributions, not sampled: each
position gives a probability instead of a yes or no.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from akunu_lab.adjustment import Adjustment
from akunu_lab.alpha.report import AlphaSetting, SourceFigures
from akunu_lab.alpha.sources import AlphaSource, Probabilities, one_hot, reply_logits
from akunu_lab.alpha.texts import MeasuredText
from akunu_lab.theory import acceptance, coupled_acceptance, match_acceptance
from akunu_lab.verifying.rejection import softmax
from akunu_py.api import Engine, Ratio

_FIXED = 5
"""Columns of sums before the lenient ones: alpha, coupled, match, known, coupled where known."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _TargetRow:
    """p at a position: the distribution to draw from; `plain` is the one at temperature 1."""

    p: Probabilities
    plain: Probabilities
    greedy: bool


def measure_setting(
    engine: Engine,
    texts: Sequence[MeasuredText],
    sources: Sequence[AlphaSource],
    *,
    temperature: float,
    lenience: Sequence[float] = (),
    progress: Callable[[int], None] | None = None,
) -> AlphaSetting:
    """Return each source's acceptance over all tokens of the replies.

    Where a source has no distribution, q is uniform. Intervals are 95 %, from resampled prompts:
    all replies to a prompt stay together. `progress` is called with the tokens measured so far.

    Raises ConfigError for a lenience outside (0, 1] or a temperature out of range.
    """
    sums = np.zeros((len(sources), len(texts), _FIXED + len(lenience)))
    uniform = np.full(engine.vocabulary_size, 1 / engine.vocabulary_size)
    done = 0
    for number, text in enumerate(texts):
        proposals = zip(*(source.rows(text, temperature) for source in sources), strict=True)
        targets = _target_rows(engine, text, temperature)
        for target, rows in zip(targets, proposals, strict=True):
            for place, q in enumerate(rows):
                row = uniform if q is None else q
                sums[place, number] += _acceptances(target, row, lenience, known=q is not None)
        done += len(text.reply)
        if progress:
            progress(done)
    weights = Ratio.weights([text.session for text in texts], name=f"alpha at {temperature:g}")
    counts = np.array([len(text.reply) for text in texts], dtype=np.float64)
    return AlphaSetting(
        temperature=temperature,
        num_tokens=int(counts.sum()),
        num_replies=len(texts),
        sources=tuple(
            _figures(source.name, sums[place], counts, weights, lenience)
            for place, source in enumerate(sources)
        ),
    )


def _target_rows(engine: Engine, text: MeasuredText, temperature: float) -> Iterable[_TargetRow]:
    adjustment = Adjustment(temperature=temperature)
    rows = text.logits
    if rows is None:
        rows = reply_logits(engine, [*text.prompt, *text.reply], len(text.prompt))
    for token, logits in zip(text.reply, rows, strict=True):
        plain = softmax(logits)
        if temperature == 0:
            # The actual choice: argmax of a row in float32 can differ from it where the
            # model computes in fewer bits.
            yield _TargetRow(one_hot(token, len(plain)), plain, greedy=True)
        else:
            yield _TargetRow(adjustment.probabilities(logits.astype(np.float64)), plain, False)


def _acceptances(
    target: _TargetRow, q: Probabilities, lenience: Sequence[float], *, known: bool
) -> Floats:
    coupled = coupled_acceptance(target.p, q)
    return np.array(
        [
            acceptance(target.p, q),
            coupled,
            match_acceptance(target.p, q),
            known,
            coupled if known else 0.0,
            *(_lenient(target, q, share) for share in lenience),
        ]
    )


def _lenient(target: _TargetRow, q: Probabilities, share: float) -> float:
    """Return alpha_l: sum min(p / l, q), and greedily the share of q on x with p(x) >= l max p.

    Appendix A.5. Greedily p is taken at temperature 1, and the target's choice is always accepted.
    """
    if not target.greedy:
        return acceptance(target.p, q, share)
    taken = (target.plain >= share * target.plain.max()) | (target.p > 0)
    return float(q[taken].sum())


def _figures(
    name: str, sums: Floats, counts: Floats, weights: Floats, lenience: Sequence[float]
) -> SourceFigures:
    totals = weights @ sums
    tokens = weights @ counts

    def figure(column: int, over: Floats = tokens) -> Ratio:
        with np.errstate(invalid="ignore", divide="ignore"):
            return Ratio.estimate(totals[:, column] / over, len(counts))

    known = totals[:, 3]
    return SourceFigures(
        name=name,
        alpha=figure(0),
        coupled=figure(1),
        match=figure(2),
        known=float(known[0] / tokens[0]),
        coupled_known=figure(4, known).ratio if known[0] else None,
        lenient={share: figure(_FIXED + place) for place, share in enumerate(lenience)},
    )
