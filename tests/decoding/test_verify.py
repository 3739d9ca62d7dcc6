"""Verification on integers, chains and trees, also by other packages' rules; checked values."""

from dataclasses import dataclass

import pytest
from drafted_trees import bare_trees
from hypothesis import given
from hypothesis import strategies as st

from akunu_py.decoding.loop import decode, make_verifier, verify_match
from akunu_py.protocols import NO_CHOICE
from akunu_py.system.errors import ConfigError, ContractError
from akunu_py.values.generation_config import VerifierOptions
from akunu_py.values.option_fields import Count, Number, option
from akunu_py.values.types import Draft, GenerationConfig, Verification


@pytest.mark.parametrize(
    ("tokens", "choices", "accepted", "next_token", "kind"),
    [
        ((), [4], (), 4, "bonus"),
        ((5,), [5, 6], (0,), 6, "bonus"),
        ((5,), [7, 6], (), 7, "recovered"),
        ((5, 6, 7), [5, 6, 8, 9], (0, 1), 8, "recovered"),
        ((5, 6, 7), [5, 6, 7, 9], (0, 1, 2), 9, "bonus"),
        ((5, 6), [6, 6, 6], (), 6, "recovered"),
        # Behind the second token nothing can be chosen: it is said, and the next pass begins there.
        ((5, 6, 7), [5, 6, NO_CHOICE, 9], (0,), 6, "recovered"),
        ((5,), [5, NO_CHOICE], (), 5, "recovered"),
        ((5,), [4, NO_CHOICE], (), 4, "recovered"),
    ],
)
def test_chains(tokens, choices, accepted, next_token, kind):
    draft = Draft.chain(tokens)
    verification = verify_match(draft, choices)
    assert verification == Verification(accepted, next_token, kind)
    assert verification.output(draft) == (*tokens[: len(accepted)], next_token)


def test_a_tree_is_walked_along_the_choices():
    #  -1 -> 0:a -> 2:c ; -1 -> 1:b -> 3:c -> 4:d
    draft = Draft((10, 11, 12, 12, 13), (-1, -1, 0, 1, 3))
    verification = verify_match(draft, [11, 99, 12, 0, 13, 77])
    assert verification == Verification((1, 3, 4), 77, "bonus")
    assert verification.output(draft) == (11, 12, 13, 77)
    assert verify_match(draft, [12, 0, 0, 0, 0, 0]).kind == "recovered"


@given(bare_trees(vocabulary=3), st.data())
def test_the_output_is_the_targets_own_path(draft, data):
    choices = data.draw(
        st.lists(st.integers(0, 3), min_size=len(draft) + 1, max_size=len(draft) + 1)
    )
    verification = verify_match(draft, choices)
    node = -1
    for accepted in verification.accepted:
        assert draft.parents[accepted] == node
        assert draft.tokens[accepted] == choices[node + 1]
        node = accepted
    assert verification.next_token == choices[node + 1]
    children = [i for i, parent in enumerate(draft.parents) if parent == node]
    assert all(draft.tokens[child] != choices[node + 1] for child in children)
    assert verification.kind == ("recovered" if children else "bonus")


def test_choices_must_cover_every_node():
    with pytest.raises(ContractError, match="2 choices for a draft of 2"):
        verify_match(Draft.chain([1, 2]), [1, 2])


@pytest.mark.parametrize(
    ("tokens", "parents"),
    [((1,), (0,)), ((1,), (-2,)), ((1, 2), (-1, 1)), ((1, 1), (-1, -1)), ((1, 2), (-1,))],
)
def test_drafts_refuse_what_is_no_tree(tokens, parents):
    with pytest.raises(ContractError):
        Draft(tokens, parents)


def test_long_chains_and_confidences():
    draft = Draft.chain(range(200))
    assert draft.is_chain
    assert len(draft) == 200
    assert not Draft((1, 2), (-1, -1)).is_chain


def test_a_chain_is_one_whatever_holds_its_parents():
    """As a plug-in may give them; taken for a tree it would be cut, and told of, as one."""
    assert Draft([1, 2], [-1, 0]).is_chain
    assert Draft([1] * 70, list(range(-1, 69))).is_chain
    assert not Draft([1, 2], [-1, -1]).is_chain
    with pytest.raises(ContractError, match="confidences"):
        Draft.chain([1, 2], confidence=(0.5,))


@dataclass(frozen=True)
class Rule(VerifierOptions):
    patience: int = option(1, Count(1, "1 or more"))

    @property
    def exactness(self):
        return "stream" if self.patience == 1 else "none"

    def check(self, config):
        if self.patience > config.num_draft_tokens:
            raise ConfigError("patience is longer than a draft")

    def make(self, config, seed):
        return (self.patience, config, seed)


@dataclass(frozen=True)
class OtherRule(VerifierOptions):
    trust: float = option(1.0, Number(0, 1, "a number from 0 to 1"))


def configured(**options):
    return GenerationConfig(num_draft_tokens=4, draft_options=options)


def test_its_options_choose_a_rule(offer):
    offer(verifiers={"rule": Rule, "other": OtherRule, "gone": None})
    config = configured(patience=3)
    assert make_verifier(config, 7) == (3, config, 7)
    assert config.exactness == "none"
    assert configured(trust=0.5).verifier == OtherRule(0.5)
    assert make_verifier(configured(trust=0.5), 7).decode is decode
    assert configured(patience=2, depth=1).drafter_options == {"depth": 1}


def test_the_models_own_choice_asks_nobody(offer, monkeypatch):
    offer()
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: pytest.fail(group))
    assert make_verifier(GenerationConfig(), 3).decode is decode
    assert GenerationConfig().exactness == "stream"


@pytest.mark.parametrize(
    ("options", "fields", "message"),
    [
        ({"patience": 0}, {}, "patience is 0; give 1 or more"),
        ({"patience": 5}, {}, "patience is longer than a draft"),
        ({"patience": 2, "trust": 0.5}, {}, "patience and trust choose several rules"),
        ({"patience": 2}, {"logprobs": 1}, "logprobs is about the model's own choices.*patience"),
        ({"patience": 2}, {"sampler": print}, "sampler is about the model's own choices"),
    ],
)
def test_options_that_do_not_fit_are_refused_at_once(offer, options, fields, message):
    offer(verifiers={"rule": Rule, "other": OtherRule})
    with pytest.raises(ConfigError, match=message):
        GenerationConfig(num_draft_tokens=4, draft_options=options, **fields)
