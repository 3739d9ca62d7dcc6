"""Beam search over models whose every text can be enumerated.

Mutants that these tests kill, by hand: scores of the last token alone; ended hypotheses extended or
dropped; the highest id first among equals; steps taken from the draft's rows; a step with a beam not
wholly in the pass; a draft that searches beyond the last token; -inf followed.
"""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from akunu_lab.beam.search import Hypothesis, beam_search
from akunu_py.system.errors import ConfigError, ContractError

VOCABULARY = 3


class Toy:
    """Log-probabilities by a hash of seed and text; `mixed` moves them towards another seed's."""

    def __init__(self, seed, mixed=0.0, size=VOCABULARY):
        self.seed, self.mixed, self.size = seed, mixed, size
        self.asked = []

    def log_probabilities(self, continuations):
        self.asked.append(list(continuations))
        return np.stack([self.row(tokens) for tokens in continuations])

    def row(self, tokens):
        def logits(seed):
            return np.random.default_rng([seed, len(tokens), *tokens]).normal(size=self.size)

        row = (1 - self.mixed) * logits(self.seed) + self.mixed * logits(self.seed + 1)
        return row - np.log(np.exp(row).sum())


def score(model, tokens):
    total = 0.0
    for end in range(len(tokens)):
        total += float(model.row(tokens[:end])[tokens[end]])
    return total


def all_texts(length, end_ids):
    """Every text of that length, and every shorter one that ends."""
    for size in range(1, length + 1):
        for tokens in product(range(VOCABULARY), repeat=size):
            ends = [token in end_ids for token in tokens]
            if not any(ends[:-1]) and (ends[-1] or size == length):
                yield tokens


@given(st.integers(0, 10_000), st.integers(1, 4), st.sampled_from([(), (0,), (0, 1)]))
def test_a_beam_wide_enough_finds_the_best_of_all(seed, length, end_ids):
    model = Toy(seed)
    everything = sorted(all_texts(length, end_ids), key=lambda tokens: -score(model, tokens))
    found = beam_search(model, width=81, max_tokens=length, end_ids=end_ids)
    assert [hypothesis.tokens for hypothesis in found.hypotheses] == everything
    for hypothesis in found.hypotheses:
        assert hypothesis.log_probability == score(model, hypothesis.tokens)
        assert hypothesis.ended == (hypothesis.tokens[-1] in end_ids)


def plain_by_definition(model, width, length, end_ids):
    beam = [()]
    for _ in range(length):
        extended = []
        for tokens in beam:
            if tokens and tokens[-1] in end_ids:
                extended.append(tokens)
            else:
                extended += [(*tokens, token) for token in range(VOCABULARY)]
        beam = sorted(extended, key=lambda tokens: -score(model, tokens))[:width]
    return beam


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 6), st.sampled_from([(), (0,)]))
def test_each_step_keeps_the_best(seed, width, length, end_ids):
    model = Toy(seed)
    found = beam_search(model, width=width, max_tokens=length, end_ids=end_ids)
    expected = plain_by_definition(model, width, length, end_ids)
    assert [hypothesis.tokens for hypothesis in found.hypotheses] == expected
    assert found.passes == found.steps <= length
    assert found.draft_steps == found.kept_draft_steps == 0


@given(
    st.integers(0, 10_000), st.integers(1, 4), st.integers(0, 3), st.integers(1, 5),
    st.integers(1, 8), st.sampled_from([(), (0,), (1, 2)]), st.sampled_from([0.0, 0.2, 1.0]),
)  # fmt: skip
def test_searching_ahead_changes_nothing(seed, width, wider, ahead, length, end_ids, mixed):
    target, draft = Toy(seed), Toy(seed, mixed)
    plain = beam_search(target, width=width, max_tokens=length, end_ids=end_ids)
    found = beam_search(
        target, draft, width=width, draft_width=width + wider, num_draft_steps=ahead,
        max_tokens=length, end_ids=end_ids,
    )  # fmt: skip
    assert found.hypotheses == plain.hypotheses
    assert found.steps == plain.steps
    assert found.passes <= plain.passes
    # No continuation is asked for that no step could use, and none twice in a pass.
    for asked in target.asked:
        assert len(set(asked)) == len(asked)
        assert max(map(len, asked)) < length


def test_a_draft_that_searches_alike_saves_passes():
    target = Toy(5)
    found = beam_search(target, Toy(5), width=2, draft_width=2, num_draft_steps=3, max_tokens=12)
    assert (found.steps, found.passes) == (12, 3)
    assert (found.draft_steps, found.kept_draft_steps) == (9, 9)
    assert found.rows == sum(map(len, target.asked)) == 1 + 2 * 3 + 2 * 4 * 2
    other = beam_search(Toy(5), Toy(77), width=2, draft_width=2, num_draft_steps=3, max_tokens=12)
    assert 3 < other.passes < 12
    assert other.draft_steps > other.kept_draft_steps == 12 - other.passes
    assert other.hypotheses == found.hypotheses


@pytest.mark.slow
def test_wider_drafts_keep_more_steps():
    def passes(wide):
        return sum(
            beam_search(
                Toy(seed), Toy(seed, 0.3), width=2, draft_width=wide, num_draft_steps=4,
                max_tokens=10,
            ).passes
            for seed in range(20)
        )  # fmt: skip

    assert passes(2) > passes(4) > passes(8)


class Fixed:
    def __init__(self, *rows):
        self.rows = rows

    def log_probabilities(self, continuations):
        return np.array([self.rows[len(tokens)] for tokens in continuations])


def test_equals_keep_their_order_and_impossible_tokens_never_come():
    equal = Fixed([-1.0, -1.0, -np.inf], [-1.0, -np.inf, -1.0])
    found = beam_search(equal, width=3, max_tokens=2)
    assert [hypothesis.tokens for hypothesis in found.hypotheses] == [(0, 0), (0, 2), (1, 0)]
    few = beam_search(Fixed([0.0, -np.inf, -np.inf]), width=3, max_tokens=1)
    assert few.hypotheses == (Hypothesis((0,), 0.0, ended=False),)


def test_equals_at_the_edge_go_to_the_lowest_ids():
    found = beam_search(Fixed([-2.0, -1.0, -3.0, -2.0, -2.0]), width=3, max_tokens=1)
    assert [hypothesis.tokens for hypothesis in found.hypotheses] == [(1,), (0,), (3,)]


def test_what_a_search_refuses():
    toy = Toy(1)
    for options in ({"width": 0, "max_tokens": 1}, {"width": 1, "max_tokens": 0}):
        with pytest.raises(ConfigError):
            beam_search(toy, **options)
    for wide, ahead in ((1, 2), (2, 0)):
        with pytest.raises(ConfigError):
            beam_search(toy, toy, width=2, draft_width=wide, num_draft_steps=ahead, max_tokens=4)
    for rows in ([[np.nan, 0.0]], [[-np.inf, -np.inf]], [0.0, 0.0]):
        with pytest.raises(ContractError):
            beam_search(Fixed(*rows), width=2, max_tokens=1)
