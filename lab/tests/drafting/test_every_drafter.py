"""What holds for each drafter that needs a text alone, or the target's candidates besides."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_lab.counts import CorpusModel, CountDrafter, NgramModel, fit_counts
from akunu_lab.drafting.adaptive_length import AllOf, EntropyLength, FixedLength, LowerBoundStop
from akunu_lab.drafting.assisted import AssistedNgramDrafter
from akunu_lab.drafting.combined import CombinedDrafter, CombinedSource
from akunu_lab.drafting.recycling import RecyclingDrafter
from akunu_lab.drafting.tree import TreeDrafter
from akunu_py.decoding.loop import decode
from akunu_py.drafting import AutoDrafter, LookupDrafter, NgramDrafter, WindowedNgramDrafter
from akunu_py.system.errors import ConfigError
from akunu_py.testing import ToyTarget
from akunu_py.values.types import GenerationConfig

SIZE = 4
TOKENS = st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=40)


def counts(most, **fields):
    drafter = CountDrafter(NgramModel(SIZE), num_draft_tokens=most, **fields)
    drafter.begin_reply(GenerationConfig(temperature=1.0, presence_penalty=0.5), 7)
    return drafter


def combined(most):
    sources = (
        CombinedSource(AssistedNgramDrafter(), 0.6),
        CombinedSource(counts(most), max_tokens=1),
    )
    return CombinedDrafter(sources, num_draft_tokens=most)


DRAFTERS = {
    "lookup": lambda most: LookupDrafter(num_draft_tokens=most),
    "ngram": lambda most: NgramDrafter(num_draft_tokens=most),
    "ngram-window": lambda most: WindowedNgramDrafter(num_draft_tokens=most, history=20),
    "auto": lambda most: AutoDrafter(max_length=most),
    "recycling": lambda most: RecyclingDrafter(num_draft_tokens=most),
    "ngram-assisted": lambda most: AssistedNgramDrafter(num_draft_tokens=most),
    "tree": lambda most: TreeDrafter(num_draft_tokens=most),
    "counts": counts,
    "counts, greedy": lambda most: counts(most, draws="greedy"),
    "combined": combined,
}
EACH = pytest.mark.parametrize("make", DRAFTERS.values(), ids=DRAFTERS)


class Telling(ToyTarget):
    """Knows what it finds likely, rightly and wrongly."""

    def track_candidates(self, count):
        self.count = count

    def choose(self, last, draft):
        choices = super().choose(last, draft)
        rows = zip((last, *draft.tokens), choices, strict=True)
        self.found = [(fed, (choice, (choice + 1) % SIZE, fed)) for fed, choice in rows]
        return choices

    def candidates(self):
        return self.found


@EACH
@given(TOKENS, st.integers(-2, 20), st.integers(0, 6))
def test_never_more_than_asked_for_and_the_same_again(make, tokens, limit, most):
    drafter = make(most)
    drafter.observe_candidates([(token, [(token + 1) % SIZE, 0]) for token in range(SIZE)])
    drafter.observe(tokens)
    draft = drafter.propose(limit)
    assert len(draft) <= max(0, min(limit, most))
    assert drafter.propose(limit) == draft


@EACH
@given(TOKENS, st.lists(st.integers(0, 40), max_size=6))
def test_the_chunks_of_a_text_do_not_matter(make, tokens, cuts):
    whole, chunked = make(9), make(9)
    whole.observe(tokens[:1])
    chunked.observe(tokens[:1])
    whole.observe(tokens)
    bounds = sorted({0, len(tokens), *(min(cut, len(tokens)) for cut in cuts)})
    for begin, end in pairwise(bounds):
        chunked.observe(tuple(tokens[begin:end]))
    assert chunked.propose(9) == whole.propose(9)


@EACH
@given(TOKENS, st.integers(0, 50), st.integers(1, 8))
def test_the_output_is_that_of_plain_decoding(make, prompt, seed, most):
    rules = {"rule": lambda context: (context[-1] + seed % 3) % SIZE} if seed % 2 else {}
    target = Telling(prompt, vocabulary_size=SIZE, seed=seed, **rules)
    drafter = make(most)
    drafter.observe(prompt)
    steps = list(decode(target, drafter, prompt[-1], num_draft_tokens=most, max_tokens=40))
    assert [token for step in steps for token in step.token_ids] == target.plain(prompt, 40)
    # A cycle of the target's own.
    assert not rules or make is DRAFTERS["auto"] or len(steps) < 40


def refused(make, message):
    return pytest.param(make, message, id=message)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        refused(lambda: LookupDrafter(max_context=0), "max_context is 0"),
        refused(lambda: LookupDrafter(num_draft_tokens=-1), "num_draft_tokens is -1"),
        refused(lambda: LookupDrafter(min_match=0), "min_match is 0"),
        refused(lambda: LookupDrafter(min_match=4), "min_match is 4"),
        refused(lambda: NgramDrafter(max_order=1), "max_order is 1"),
        refused(lambda: NgramDrafter(history=3), "history is 3"),
        refused(lambda: NgramDrafter(num_draft_tokens=-1), "num_draft_tokens is -1"),
        refused(lambda: NgramDrafter(min_match=0), "min_match is 0"),
        refused(lambda: NgramDrafter(min_match=4), "min_match is 4"),
        refused(lambda: AutoDrafter(max_length=-1), "max_length is -1"),
        refused(lambda: AutoDrafter(max_length=65), "max_length is 65"),
        refused(lambda: RecyclingDrafter(num_draft_tokens=-1), "num_draft_tokens is -1"),
        refused(lambda: TreeDrafter(num_draft_tokens=-1), "num_draft_tokens is -1"),
        refused(lambda: TreeDrafter(num_branches=-1), "num_branches is -1"),
        refused(lambda: AssistedNgramDrafter(num_candidates=0), "num_candidates is 0"),
        refused(lambda: AssistedNgramDrafter(max_order=1), "max_order is 1"),
        refused(lambda: counts(-1), "num_draft_tokens is -1"),
        refused(lambda: counts(65), "num_draft_tokens is 65"),
        refused(lambda: counts(4, draws="best"), "draws is 'best'"),
        refused(lambda: counts(4, draft_temperature=-1), "temperature"),
        refused(lambda: CombinedDrafter([], num_draft_tokens=4), "at least one drafter"),
        refused(lambda: combined(-1), "num_draft_tokens is -1"),
        refused(lambda: combined(65), "num_draft_tokens is 65"),
        refused(lambda: CombinedSource(LookupDrafter(), 1.5), "min_confidence is 1.5"),
        refused(lambda: CombinedSource(LookupDrafter(), max_tokens=0), "max_tokens is 0"),
        refused(lambda: NgramModel(0), "vocabulary_size is 0"),
        refused(lambda: NgramModel(5, order=0), "order is 0"),
        refused(lambda: NgramModel(5, order=9), "order is 9"),
        refused(lambda: NgramModel(5, order=2.0), "order is 2.0"),
        refused(lambda: NgramModel(5, discount=1), "discount is 1"),
        refused(lambda: NgramModel(5, discount=-0.1), "discount is -0.1"),
        refused(lambda: NgramModel(5, discount=float("nan")), "discount is nan"),
        refused(lambda: CorpusModel(fit_counts([[1]], 4, order=1), order=2), "not counted"),
        refused(lambda: CorpusModel(fit_counts([[1]], 4), order=3), "order is 3"),
        refused(lambda: fit_counts([], 4, order=3), "order is 3"),
        refused(lambda: FixedLength(-1), "num_draft_tokens is -1"),
        refused(lambda: EntropyLength(shortest=3, longest=2), "drafts of 3 to 2 tokens"),
        refused(lambda: EntropyLength(shortest=-1), "drafts of -1 to 8 tokens"),
        refused(lambda: EntropyLength(beta=1.0), "beta is 1.0"),
        refused(lambda: EntropyLength(beta=float("nan")), "beta is nan"),
        refused(lambda: LowerBoundStop(1.1), "bound is 1.1"),
        refused(lambda: LowerBoundStop(float("nan")), "bound is nan"),
        refused(lambda: LowerBoundStop(0.5, estimate="mean"), "estimate is 'mean'"),
        refused(lambda: LowerBoundStop(0.5, scale=0), "scale is 0"),
        refused(lambda: AllOf([]), "at least one rule"),
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
