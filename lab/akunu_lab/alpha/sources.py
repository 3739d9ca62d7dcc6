"""Sources of q: distributions of the next token that a draft could be drawn from.

In order of their knowledge: nothing, counts of other texts, counts of the text itself, copies of
it, a smaller model. Leviathan et al. 2023 (arXiv:2211.17192) measure similar ones in table 3.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from akunu_lab.adjustment import Adjustment
from akunu_lab.alpha.texts import MeasuredText
from akunu_lab.counts.corpus_model import CorpusCounts, CorpusModel
from akunu_lab.counts.fitting import fit_counts
from akunu_lab.counts.interpolation import CountModel
from akunu_lab.counts.ngram_model import NgramModel
from akunu_py.api import Drafter, Engine, common_ids

Probabilities = NDArray[np.float64]
"""One distribution, float64 [vocab]."""

CONTEXT_ORDER = 4


class AlphaSource(Protocol):
    """A source of q."""

    @property
    def name(self) -> str:
        """Return its name in tables."""

    def rows(self, text: MeasuredText, temperature: float) -> Iterator[Probabilities | None]:
        """Yield q for each token of the reply, after the transforms of that temperature.

        None where the source has no distribution.
        """


class UniformSource:
    """The uniform distribution at every temperature: a drafter without knowledge."""

    name = "uniform"

    def rows(self, text: MeasuredText, temperature: float) -> Iterator[Probabilities | None]:  # noqa: ARG002
        return (None for _ in text.reply)


class CorpusSource:
    """A unigram or bigram model of other texts; `counts` has one entry for each measured half."""

    def __init__(self, order: int, counts: Mapping[int, CorpusCounts]) -> None:
        self.name = ("unigram", "bigram")[order - 1]
        self._models = {half: CorpusModel(fitted, order) for half, fitted in counts.items()}

    def rows(self, text: MeasuredText, temperature: float) -> Iterator[Probabilities | None]:
        return _count_rows(self._models[text.half], text, temperature)


def fitted_on_other_half(
    texts: Iterable[MeasuredText], vocabulary_size: int
) -> dict[int, CorpusCounts]:
    """Return for each half the counts of the other half, so that no text is fitted to itself."""
    texts = list(texts)
    return {
        half: fit_counts((text.reply for text in texts if text.half != half), vocabulary_size)
        for half in (0, 1)
    }


class ContextSource:
    """Counts of prompt and reply so far, of n-grams up to `CONTEXT_ORDER`, with back-off."""

    name = f"{CONTEXT_ORDER}-gram of the context"

    def __init__(self, vocabulary_size: int) -> None:
        self._vocabulary_size = vocabulary_size

    def rows(self, text: MeasuredText, temperature: float) -> Iterator[Probabilities | None]:
        model = NgramModel(self._vocabulary_size, order=CONTEXT_ORDER)
        return _count_rows(model, text, temperature)


def _count_rows(
    model: CountModel, text: MeasuredText, temperature: float
) -> Iterator[Probabilities]:
    adjustment = Adjustment(temperature=temperature)
    ids = [*text.prompt, *text.reply]
    model.observe(text.prompt)
    for place in range(len(text.prompt), len(ids)):
        before = ids[max(0, place - model.order + 1) : place]
        yield model.distribution(before).adjust(adjustment).dense()
        model.observe(ids[place : place + 1])


class DrafterSource:
    """The first token a drafter proposes, one-hot at every temperature; None without one."""

    def __init__(self, name: str, make: Callable[[], Drafter], vocabulary_size: int) -> None:
        self.name = name
        self._make = make
        self._vocabulary_size = vocabulary_size

    def rows(self, text: MeasuredText, temperature: float) -> Iterator[Probabilities | None]:  # noqa: ARG002
        drafter = self._make()
        drafter.observe(text.prompt)
        for token in text.reply:
            draft = drafter.propose(1)
            yield one_hot(draft.tokens[0], self._vocabulary_size) if draft.tokens else None
            drafter.observe((token,))


class DraftModelSource:
    """A smaller model, over the ids it shares with the target; None beyond its context.

    Raises ConfigError for a model with another vocabulary.
    """

    name = "draft model"

    def __init__(self, model: Engine, target: Engine) -> None:
        self._model = model
        self._vocabulary_size = target.vocabulary_size
        texts = (engine.tokenizer.token_texts() for engine in (target, model))
        self._common = min(common_ids(*texts), model.vocabulary_size, target.vocabulary_size)

    def rows(self, text: MeasuredText, temperature: float) -> Iterator[Probabilities | None]:
        adjustment = Adjustment(temperature=temperature)
        # An id that the draft model lacks is fed as id 0, as by its drafter.
        ids = [token if token < self._common else 0 for token in (*text.prompt, *text.reply)]
        rows = reply_logits(self._model, ids, len(text.prompt))
        for logits in rows:
            row = np.zeros(self._vocabulary_size)
            known = logits[: self._common].astype(np.float64)
            row[: self._common] = adjustment.probabilities(known)
            yield row
        yield from (None for _ in range(len(text.reply) - len(rows)))


def reply_logits(engine: Engine, ids: Sequence[int], num_prompt_tokens: int) -> NDArray[np.float32]:
    """Return the logits of each token after the prompt, within the context: [n, vocab].

    One pass (or one a chunk) gives the same logits as a pass a token, up to rounding. If the text
    begins like the engine's last one, only the rest is fed.
    """
    # The last token's own row predicts a token after the text.
    fed = ids[:-1][: engine.context]
    start = num_prompt_tokens - 1
    if start >= len(fed):
        return np.zeros((0, engine.vocabulary_size), dtype=np.float32)
    return engine.logits(fed, start)


def one_hot(token: int, size: int) -> Probabilities:
    """Return the one-hot distribution of a token."""
    row = np.zeros(size)
    row[token] = 1.0
    return row
