"""Token recycling: the last candidates of each token, as far as they lately held."""

import pytest
from candidate_rows import CONFIGS, Recorder, true_rows
from pairwise import each_value
from tiny_models import begin, generate, prompt_of, tiny

from akunu_lab.drafting import recycling
from akunu_lab.drafting.recycling import RecyclingDrafter
from akunu_py import Engine
from akunu_py.decoding.loop import decode
from akunu_py.drafting import NgramDrafter, PlainDrafter
from akunu_py.models.session import Session


def test_it_observes_candidates_and_others_do_not():
    assert RecyclingDrafter().reads_candidates
    assert not NgramDrafter().reads_candidates


def test_the_best_candidates_are_followed_from_the_last_token():
    drafter = RecyclingDrafter(num_draft_tokens=3)
    drafter.observe([5])
    assert drafter.propose(3).tokens == ()
    drafter.observe_candidates([(5, [6, 1]), (6, [7]), (7, [5, 9])])
    # Nothing is known of how good they are: half as good a token is the start.
    draft = drafter.propose(3)
    assert draft.tokens == (6, 7)
    assert draft.confidence == (0.5, 0.5)
    assert draft.source == "recycling"


def test_later_rows_replace_earlier_ones():
    drafter = RecyclingDrafter()
    drafter.observe([5])
    drafter.observe_candidates([(5, [6])])
    drafter.observe_candidates([(5, [8]), (9, [1])])
    assert drafter.propose(1).tokens == (8,)
    drafter.observe_candidates([(5, [])])
    assert drafter.propose(1).tokens == ()


def test_the_chain_grows_with_success_and_shrinks_with_failure():
    drafter = RecyclingDrafter(num_draft_tokens=6)
    drafter.observe_candidates([(token, [token + 1]) for token in range(100)])
    drafter.observe([0])
    lengths = []
    for _ in range(12):
        draft = drafter.propose(6)
        lengths.append(len(draft))
        drafter.observe((*draft.tokens, draft.tokens[-1] + 1) if len(draft) else (1,))
    assert lengths == sorted(lengths)
    assert lengths[-1] == 6
    for _ in range(60):
        drafter.propose(6)
        drafter.observe((50,))
        drafter.observe((0,))
    assert len(drafter.propose(6)) == 1


def test_what_lies_beyond_the_first_wrong_token_is_no_failure():
    drafter = RecyclingDrafter(num_draft_tokens=2)
    drafter.observe_candidates([(1, [2]), (2, [3])])
    drafter.observe([1])
    assert drafter.propose(2).tokens == (2, 3)
    drafter.observe([9])
    assert drafter._tries[0] > drafter._tries[1] == 1.0


def test_it_is_bounded(monkeypatch):
    monkeypatch.setattr(recycling, "MAX_TOKENS", 3)
    drafter = RecyclingDrafter()
    drafter.observe_candidates([(1, [2]), (2, [3]), (3, [4]), (1, [5]), (4, [6])])
    assert drafter._best == {3: 4, 1: 5, 4: 6}


@pytest.mark.slow
def test_recycling_drafts_and_some_of_it_is_right(default_model):
    with Engine.load(default_model) as engine:
        prompt = "class Stack:\n"
        never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
        options = {"max_tokens": 40, "logit_bias": never}
        plain = engine.generate(prompt, drafter="none", **options)
        for budget in ("auto", "always"):
            result = engine.generate(prompt, drafter="recycling", draft_budget=budget, **options)
            assert result.token_ids == plain.token_ids
        assert result.stats.drafted > 10
        assert result.stats.accepted > 3
        sampled = {**options, "temperature": 0.8, "seed": 6}
        plain = engine.generate(prompt, drafter="none", **sampled)
        result = engine.generate(prompt, drafter="recycling", draft_budget="always", **sampled)
        assert result.token_ids == plain.token_ids


@pytest.mark.slow
@pytest.mark.parametrize(("name", "reproducible"), each_value(list(CONFIGS), [False, True], most=2))
def test_recycling_changes_no_token_and_is_told_of_raw_logits(name, reproducible):
    model = tiny()
    session = Session(model, context=600, reproducible=reproducible)
    for size in (1, 20):
        prompt = prompt_of(size)
        plain = generate(session, prompt, CONFIGS[name], PlainDrafter(), max_tokens=30)
        drafter = Recorder(RecyclingDrafter())
        found = generate(session, prompt, CONFIGS[name], drafter, max_tokens=30)
        assert found == plain
        assert sum(map(len, drafter.passes)) == len(found)
        # What was committed lies behind the rows that were told.
        position = len(prompt) - 1
        text = [*prompt, *found]
        for rows, output in zip(drafter.rows, drafter.passes, strict=True):
            told = [token for token, _ in rows]
            assert told[: len(output)] == text[position : position + len(output)]
            context = text[: position + 1]
            assert rows[0] == true_rows(session, context[:-1], context[-1:])[0]
            position += len(output)


@pytest.mark.slow
def test_recycling_drafts_what_no_text_holds():
    """A cycle of a random model's own: after one round its candidates foretell the next ones."""
    session = Session(tiny(), context=600)
    accepted = drafted = 0
    for seed in range(3):
        prompt = prompt_of(5, seed)
        begin(session, prompt, max_tokens=200)
        drafter = RecyclingDrafter()
        drafter.observe(prompt)
        for step in decode(session, drafter, prompt[-1], num_draft_tokens=4, max_tokens=200):
            drafted += step.stats.num_draft_tokens
            accepted += step.stats.num_accepted_tokens
    assert drafted > 50
    assert accepted > 10
