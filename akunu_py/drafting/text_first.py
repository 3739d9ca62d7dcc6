"""The drafter `auto` where there is also a model to ask: copies first, then what a model draws.

Text that repeats is drafted for free. A prediction head or a draft model takes time for each token,
and is asked where there is nothing to copy, in place of a copy that is expected to bring less, and
for the tokens behind a copy.
"""

from collections.abc import Iterator, Sequence

from akunu_py.drafting.auto import AutoDrafter
from akunu_py.drafting.draft_model import DraftModelDrafter
from akunu_py.protocols import DrafterAround, DrawingRule
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import Draft


class TextFirstDrafter(DrafterAround):
    """Drafts from earlier text, and with a model where that pays; `auto` with a model.

    The rule decides what pays. Without one the model goes on behind every copy, as far as it may.
    It reads hidden states and rows if the model does.

    Args:
        text: drafts copies.
        model: draws with the target's noise, so its drafts need no probabilities.

    """

    name = AutoDrafter.name

    def __init__(self, text: AutoDrafter, model: DraftModelDrafter) -> None:
        super().__init__(model)
        self.uses_curve = True
        self._text = text
        self._model = model
        self._rule: DrawingRule | None = None

    def reading(self, prompt: Sequence[int]) -> Iterator[None]:
        self._text.observe(prompt)
        yield from self._model.reading(prompt)

    def observe(self, tokens: Sequence[int]) -> None:
        self._text.observe(tokens)
        self._model.observe(tokens)

    def use_rule(self, rule: DrawingRule) -> None:
        self._rule = rule
        self._model.use_rule(rule)

    def use_curve(self, curve: CostCurve) -> None:
        self._text.use_curve(curve)

    def propose(self, limit: int) -> Draft:
        copied = self._text.propose(limit)
        room = min(limit, self._model.num_draft_tokens)
        further = self._model.further_passes
        if (
            copied.tokens
            and self._rule
            and self._rule.draws_instead(copied, room=room, further=further)
        ):
            copied = Draft.empty(self.name)
        drawn = self._model.extend(copied, limit - len(copied))
        self._text.count_drafted(len(copied) + len(drawn))
        return _append(copied, drawn)

    def extend(self, before: Draft, limit: int) -> Draft:
        """Draft with the model alone, after another drafter's chain."""
        return self._model.extend(before, limit)


def _append(copied: Draft, drawn: Draft) -> Draft:
    """Return a copied chain followed by a drawn one."""
    if not drawn.tokens:
        return copied
    return Draft.chain(
        (*copied.tokens, *drawn.tokens),
        copied.source,
        copied.match_length,
        (*copied.confidence, *drawn.confidence),
        (*copied.origins, *(drawn.source,) * len(drawn)),
        places=(*copied.places, *(-1,) * len(drawn)),
        drawn=len(drawn),
    )
