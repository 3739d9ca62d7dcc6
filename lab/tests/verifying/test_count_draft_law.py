"""Count drafts under rejection sampling, over all outcomes: exact with every rule for the length.

And one rule that looks at the token drawn, which must fail: so the test can see what it is for.
"""

import numpy as np
import pytest
from enumeration import distance, enumerate_law, extended, plain_law
from toy_drafters import hashed_law

from akunu_lab.counts.drafter import SampledCountDrafter
from akunu_lab.counts.ngram_model import NgramModel
from akunu_lab.drafting.adaptive_length import AllOf, EntropyLength, FixedLength, LowerBoundStop
from akunu_lab.drafting.assisted import AssistedNgramDrafter
from akunu_lab.drafting.combined import CombinedDrafter
from akunu_lab.drafting.combined import CombinedSource as Source
from akunu_lab.verifying.draft_law import draft_law
from akunu_lab.verifying.verifiers import RejectionVerifier
from akunu_py.values.types import GenerationConfig

SIZE = 3
PROMPT = (0, 1, 0, 2, 0, 1, 0)
TOKENS = 3


class EnumeratedDraws(SampledCountDrafter):
    """The drafter, every draw of which is a choice to enumerate."""

    branch = None
    drop_below = 0.0

    def _choose(self, q, position):
        return self.branch.choose(q.dense())

    def propose(self, limit):
        draft = super().propose(limit)
        # What a drafter must not do: a length by the tokens that were drawn.
        for place, token in enumerate(draft.tokens):
            if self._rows[place].probability(token) < self.drop_below:
                del self._rows[place:]
                return draft.first(place)
        return draft


def law_of(p, make_rule, drop_below=0.0, combined=False):
    def run(branch):
        model = NgramModel(SIZE, order=2, discount=0.5)
        drafter = EnumeratedDraws(model, num_draft_tokens=2, length=make_rule())
        drafter.branch, drafter.drop_below = branch, drop_below
        if combined:
            sources = [Source(AssistedNgramDrafter(), 0.6), Source(drafter, max_tokens=1)]
            drafter = CombinedDrafter(sources, num_draft_tokens=2, vocabulary_size=SIZE)
        drafter.begin_reply(GenerationConfig(temperature=1.2), 5)
        drafter.observe(PROMPT)
        verifier = RejectionVerifier(branch)
        context = PROMPT
        while len(context) < len(PROMPT) + TOKENS:
            draft = drafter.propose(len(PROMPT) + TOKENS - 1 - len(context))
            rows = np.stack([p((*context, *draft.tokens[:n])) for n in range(len(draft) + 1)])
            verdict = verifier.verify(draft, draft_law(drafter, draft), rows, len(context))
            output = verdict.output(draft)
            drafter.observe(output)
            context += output
        return context[len(PROMPT) :]

    return enumerate_law(run)


RULES = {
    "fixed": lambda: FixedLength(2),
    "entropy": lambda: EntropyLength(shortest=0, longest=3, beta=0.6),
    "bound": lambda: LowerBoundStop(0.55),
    "product": lambda: LowerBoundStop(0.3, whole=True),
    "entropy-bound": lambda: LowerBoundStop(0.56, estimate="entropy"),
    "all": lambda: AllOf([EntropyLength(shortest=1, longest=2), LowerBoundStop(0.4)]),
}


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rule", RULES)
def test_rejection_keeps_the_law_with_every_length_rule(rule, seed):
    p = hashed_law(SIZE, seed)
    found = extended(law_of(p, RULES[rule]), p, PROMPT, TOKENS)
    assert distance(found, plain_law(p, PROMPT, TOKENS)) < 1e-12


@pytest.mark.parametrize("rule", ["fixed", "bound"])
def test_rejection_keeps_the_law_of_copies_and_draws_in_one_chain(rule):
    p = hashed_law(SIZE, 1)
    found = extended(law_of(p, RULES[rule], combined=True), p, PROMPT, TOKENS)
    assert distance(found, plain_law(p, PROMPT, TOKENS)) < 1e-12


@pytest.mark.slow
def test_a_length_by_the_token_drawn_breaks_the_law():
    p = hashed_law(SIZE, 0)
    found = extended(law_of(p, RULES["fixed"], drop_below=0.3), p, PROMPT, TOKENS)
    assert distance(found, plain_law(p, PROMPT, TOKENS)) > 0.01
