"""How many guesses of a head the model accepts on held-out replies, by position.

A draft begins at every place of a reply. At temperature 0 a guess is accepted where the head's
likeliest token is the reply's. At others a reply's token x, which the model sampled with p(x),
would have been an accepted draft with min(1, q(x) / p(x)), q being the head's distribution, if
drafts are sampled and verified by rejection (Leviathan et al. 2023, arXiv:2211.17192). A guess
counts only if all guesses before it were accepted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from mlx import nn

from akunu_py.models.heads.head import CachedHead
from akunu_py.models.heads.parallel import ParallelHead
from head_training.replies import Text, logits_of
from head_training.training import batch_of, guessed_states

_RESAMPLES = 1000
_ROWS = 512
"""Rows of logits at once."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Acceptance of drafts that begin at every place of replies."""

    temperature: float
    places: int
    texts: int
    # For each position the share of drafts in which it and all before it are accepted, with the
    # ends of a 95 % interval over replies.
    rates: tuple[tuple[float, float, float], ...]

    def __str__(self) -> str:
        rates = ", ".join(f"{r:.1%} ({low:.1%}-{high:.1%})" for r, low, high in self.rates)
        return (
            f"temperature {self.temperature:g}, {self.texts} replies, {self.places} places: {rates}"
        )


def acceptances(
    model: nn.Module, head: CachedHead, texts: Sequence[Text], depths: int
) -> list[Acceptance]:
    """Return the acceptance at each temperature of held-out replies."""
    found = []
    for temperature in sorted({text.temperature for text in texts}):
        of_texts = [
            _chances(model, head, text, depths)
            for text in texts
            if text.temperature == temperature and len(text.ids) > text.prompt
        ]
        if of_texts:
            found.append(_acceptance(temperature, of_texts))
    return found


def _chances(model: nn.Module, head: CachedHead, text: Text, depths: int) -> np.ndarray:
    """Return the probability that the guess of each depth and place is accepted, [depths, n].

    It is NaN where the reply has no token to guess.
    """
    batch = batch_of([text], depths)
    known = mx.array(text.states.astype(np.float32))
    rows = []
    for depth, states in enumerate(guessed_states(model, head, batch, depths)):
        answers = batch.answers[depth]
        # The token after the last state is not known.
        there = np.array(batch.alive[depth] * (answers + 1 < len(text.ids))) > 0
        tokens = mx.array(text.ids)[mx.minimum(answers + 1, len(text.ids) - 1)]
        chances = [
            _accepted(
                _logits(head, depth, states[place : place + _ROWS]),
                logits_of(model, known[answers[place : place + _ROWS]]),
                tokens[place : place + _ROWS],
                text.temperature,
            )
            for place in range(0, len(answers), _ROWS)
        ]
        rows.append(np.where(there, np.concatenate(chances), np.nan))
    return np.stack(rows)


def _logits(head: CachedHead, depth: int, states: mx.array) -> mx.array:
    """Return the logits [n, vocab] of the states [n, width] of a depth."""
    rows = states[None]
    return (head.logits_at(depth, rows) if isinstance(head, ParallelHead) else head.logits(rows))[0]


def _accepted(
    guessed: mx.array, wanted: mx.array, tokens: mx.array, temperature: float
) -> np.ndarray:
    """Return the probability that each token was an accepted draft.

    `guessed` and `wanted` are the head's and the model's logits, [n, vocab].
    """
    if temperature == 0:
        return np.array(mx.argmax(guessed, axis=-1) == tokens, dtype=np.float64)
    of_model = _log_shares(wanted, tokens, temperature)
    of_head = _log_shares(guessed, tokens, temperature)
    return np.exp(np.minimum(0.0, np.array(of_head - of_model, dtype=np.float64)))


def _log_shares(logits: mx.array, tokens: mx.array, temperature: float) -> mx.array:
    """Return the logarithm of each token's probability."""
    scaled = logits / temperature
    chosen = mx.take_along_axis(scaled, tokens[:, None], axis=-1)[:, 0]
    return chosen - mx.logsumexp(scaled, axis=-1)


def _acceptance(temperature: float, of_texts: Sequence[np.ndarray]) -> Acceptance:
    """Sum up the chances of replies; those at the end of a reply, without a token, are left out."""
    chains = [np.cumprod(chances, axis=0) for chances in of_texts]
    sums = np.array([np.nansum(chain, axis=1) for chain in chains])
    counts = np.array([np.sum(~np.isnan(chain), axis=1) for chain in chains])
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(chains), size=(_RESAMPLES, len(chains)))
    resampled = sums[drawn].sum(axis=1) / np.maximum(counts[drawn].sum(axis=1), 1)
    low, high = np.percentile(resampled, (2.5, 97.5), axis=0)
    rates = sums.sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
    return Acceptance(
        temperature,
        int(counts[:, 0].sum()),
        len(chains),
        tuple(zip(rates.tolist(), low.tolist(), high.tolist(), strict=True)),
    )
