"""Several proposals a position through the decode loop: their law, enumerated; trunks and trees."""

import itertools

import numpy as np
import pytest
from enumeration import distance, enumerate_law, extended, plain_law
from toy_drafters import ToyDistributions, hashed_law

from akunu_lab.drafting.proposals import ProposalsDrafter
from akunu_lab.verifying.law_loop import decode_by_law
from akunu_lab.verifying.verifiers import RejectionVerifier
from akunu_py.drafting.draft_model import DrawnToken
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import GenerationConfig

EXACT = 1e-12
PROMPT = [9, 1]
CONFIG = GenerationConfig(temperature=1.0)


class ToyModel:
    """A `TokenModel` by a rule; draws with `choose`, as often as it is asked for proposals."""

    def __init__(self, q, choose=None):
        self.q, self.choose, self.text, self.rows = q, choose, [], []

    def beginning(self, prompt, sampling):
        self.text, self.sampling = list(prompt), sampling
        yield

    def extend(self, tokens):
        self.text += tokens

    def draw(self, limit, goes_on=None, guess=None, *, after=()):
        drawn, self.rows = [], []
        while len(drawn) < limit and (goes_on is None or goes_on(drawn)):
            row = self.q((*self.text, *after, *(token.token for token in drawn)))
            count = self.sampling.num_proposals
            if self.choose is None:
                tokens = np.argsort(-row, kind="stable")[:count].tolist()
            else:
                tokens = [self.choose(row) for _ in range(count)]
            others = tuple((token, float(row[token])) for token in tokens[1:])
            drawn.append(DrawnToken(tokens[0], float(row[tokens[0]]), 0.5, others))
            self.rows.append(row)
        return drawn

    def probabilities(self):
        return np.stack(self.rows)


class ChainsAlone(ToyDistributions):
    def takes_tree(self, draft):
        return False


def made(q, choose, num_proposals, *, rejection=True, config=CONFIG, **options):
    model = ToyModel(q, choose)
    drafter = ProposalsDrafter(model, num_proposals=num_proposals, rejection=rejection, **options)
    drafter.begin_reply(config, 3)
    drafter.observe(PROMPT)
    return drafter


def bias(p, q, length, *, num_proposals, num_draft_tokens, target, steps=None):
    """How far the law of `length` tokens is from p's; of a few steps alone, continued by p."""

    def run(branch):
        toy, tokens = target(PROMPT, p), []
        drafter = made(q, branch.choose, num_proposals)
        decoded = decode_by_law(
            toy, drafter, PROMPT[-1],
            num_draft_tokens=num_draft_tokens, max_tokens=length,
            rule=RejectionVerifier(branch), position=len(PROMPT),
        )  # fmt: skip
        for step in itertools.islice(decoded, steps):
            tokens += step.token_ids
        assert toy.cache == [*PROMPT, *tokens][:-1]
        return tuple(tokens)

    found = extended(enumerate_law(run), p, PROMPT, length)
    assert abs(sum(found.values()) - 1) < EXACT
    return distance(found, plain_law(p, PROMPT, length))


SIZES = (
    (2, 2, 3, None), (3, 2, 2, None), (3, 3, 3, 1),
    *(pytest.param(*size, marks=pytest.mark.slow)
      for size in ((2, 2, 4, None), (2, 3, 3, None), (3, 2, 4, 1))),
)  # fmt: skip


@pytest.mark.fast_every(3)
@pytest.mark.parametrize("target", [ToyDistributions, ChainsAlone])
@pytest.mark.parametrize(("vocabulary", "num_proposals", "num_draft_tokens", "steps"), SIZES)
def test_proposals_by_rejection_keep_the_law(
    target, vocabulary, num_proposals, num_draft_tokens, steps
):
    p, q = hashed_law(vocabulary, 21), hashed_law(vocabulary, 22)
    # The first step has room for all of a draft: one token less than are to come.
    length = num_draft_tokens + 1
    options = {"num_proposals": num_proposals, "num_draft_tokens": num_draft_tokens, "steps": steps}
    assert bias(p, q, length, target=target, **options) < EXACT


def test_keeping_the_best_path_of_a_sampled_tree_would_bias():
    """Why a target without trees gets the trunk: a path chosen by its tokens is no draw from q."""
    p, q = (lambda _: np.array([0.5, 0.5])), (lambda _: np.array([0.7, 0.3]))

    class Likeliest(ProposalsDrafter):
        def without_branches(self, draft):
            tokens = [node for node, parent in enumerate(draft.parents) if parent == -1]
            row = self._model.rows[0]
            best = max(tokens, key=lambda node: row[draft.tokens[node]])
            self._trunk = [best]
            return super().without_branches(draft)

    def run(branch):
        drafter = Likeliest(ToyModel(q, branch.choose), num_proposals=2, rejection=True)
        drafter.begin_reply(CONFIG, 3)
        drafter.observe(PROMPT)
        steps = decode_by_law(
            ChainsAlone(PROMPT, p), drafter, PROMPT[-1], num_draft_tokens=2, max_tokens=3,
            rule=RejectionVerifier(branch), position=len(PROMPT),
        )  # fmt: skip
        return tuple(itertools.chain.from_iterable(step.token_ids for step in steps))

    assert distance(enumerate_law(run), plain_law(p, PROMPT, 3)) > 1e-3


def test_equal_draws_are_one_node_that_is_tried_as_often():
    script = iter([1, 1, 0, 2, 0, 0])
    drafter = made(hashed_law(3, 1), lambda _: next(script), 3)
    draft = drafter.propose(7)
    assert draft.tokens == (1, 0, 2, 0)
    assert draft.parents == (-1, -1, 0, 0)
    assert drafter.draw_counts() == (2, 1, 1, 2)
    rows = drafter.draft_probabilities()
    assert (rows[0] == rows[1]).all()
    assert (rows[2] == rows[3]).all()
    assert (rows[0] != rows[2]).any()
    assert draft.confidence == ()


def test_the_trunk_is_what_was_drawn_first():
    script = iter([1, 0, 2, 0])
    drafter = made(hashed_law(3, 1), lambda _: next(script), 2)
    trunk = drafter.without_branches(drafter.propose(4))
    assert trunk.is_chain
    assert trunk.tokens == (1, 2)
    assert drafter.draw_counts() == (1, 1)
    assert drafter.draft_probabilities().shape == (2, 3)


def test_the_likeliest_tokens_are_no_draws():
    greedy = GenerationConfig(temperature=0)
    drafter = made(hashed_law(4, 1), None, 2, config=greedy)
    draft = drafter.propose(4)
    assert draft.tokens[0] != draft.tokens[1]
    assert drafter.draft_probabilities() is None
    # A draft temperature of 0 is the same, whatever the reply's is.
    drafter = made(hashed_law(4, 1), None, 2, draft_temperature=0.0)
    assert drafter.propose(4).tokens == draft.tokens
    assert drafter.draft_probabilities() is None


def test_coupled_proposals_have_q_for_confidence():
    law = hashed_law(4, 1)
    drafter = made(law, None, 2, rejection=False)
    draft = drafter.propose(5)
    assert len(draft) == 4
    assert draft.parents == (-1, -1, 0, 0)
    assert draft.confidence[:2] == pytest.approx(sorted(law(tuple(PROMPT)))[:-3:-1])


@pytest.mark.parametrize(
    ("limit", "tokens"), [(0, 0), (1, 1), (2, 2), (3, 3), (5, 3), (6, 6), (99, 6)]
)
def test_all_proposals_together_are_within_the_limit(limit, tokens):
    drafter = made(hashed_law(5, 1), None, 3, rejection=False, num_draft_tokens=8)
    assert len(drafter.propose(limit)) == tokens


@pytest.mark.parametrize("num_proposals", [0, 1, 9])
def test_proposals_out_of_range(num_proposals):
    with pytest.raises(ConfigError, match=f"num_proposals is {num_proposals}; give 1 to 8"):
        ProposalsDrafter(ToyModel(hashed_law(2, 1)), num_proposals=num_proposals)
