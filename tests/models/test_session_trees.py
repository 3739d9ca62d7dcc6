"""Trees through the session: the tokens are those of plain decoding, whatever is drafted.

Mutants that these tests kill, by hand: rows of the tree not compacted; a node's position by its row;
penalties over all rows before a node instead of its path; with a step in flight the first root taken
instead of the right one, or the rows of all branches fed; choices returned by row instead of by
node; `_fed` extended by all rows; a try not forgotten by
`close`; a model that takes no trees given one.
"""

import gc
import weakref
from itertools import cycle
from unittest.mock import Mock

import mlx.core as mx
import pytest
from family_models import build_family, variant_of
from rollback_matrix import Family
from tiny_models import VOCABULARY, begin, generate, prompt_of, sampler_of, tiny
from tree_matrix import FALL_BACK, TAKEN, TreeAdversary, Watched, largest_differences, tree_cell

from akunu_py.decoding.loop import verify_match
from akunu_py.drafting import PlainDrafter
from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.passes.tree_trials import Trees
from akunu_py.models.passes.trials import HALF_TOLERANCE, TOLERANCE
from akunu_py.models.session import Session
from akunu_py.system.errors import ContractError
from akunu_py.values.types import Draft, GenerationConfig

# One for each kind of cache a mask can be put on, in both ways positions come in.
SUBSET = ["llama", "llama, 8-bit caches", "deepseek_v32", "llama, sliding", "ministral3",
          "llama, windows with sinks", "gemma4"]  # fmt: skip
# Their caches are those of others; test_trees.py has their positions and masks.
ALIKE = {"ministral3", "llama, windows with sinks"}


@pytest.mark.parametrize(
    ("name", "temperature"),
    [
        pytest.param(name, temperature, marks=pytest.mark.slow if name in ALIKE else ())
        for name, temperature in zip(SUBSET, cycle((0.0, 0.8)), strict=False)
    ],
)
def test_no_tree_changes_a_token(name, temperature):
    cell = tree_cell(Family(name), temperature, prompt_size=12, num_tokens=40)
    assert cell.difference is None
    assert cell.passes >= 5
    assert cell.accepted >= 5


@pytest.mark.slow
@pytest.mark.parametrize("name", TAKEN)
def test_no_tree_changes_a_token_of_any_family(name):
    kv_bits = variant_of(name).kv_bits
    from_chains, from_rows, count = largest_differences(build_family(name), kv_bits)
    assert max(from_chains, from_rows) <= (HALF_TOLERANCE if kv_bits else TOLERANCE)
    assert count > 30
    temperature, prompt_size = ((0.0, 5), (0.8, 40))[TAKEN.index(name) % 2]
    cell = tree_cell(Family(name), temperature, prompt_size, num_tokens=40)
    assert cell.difference is None
    assert cell.passes >= 5


@pytest.mark.parametrize("name", ["llama4", "mamba2", "minimax_m3"])
def test_without_trees_a_path_is_verified(name):
    cell = tree_cell(Family(name), 0.8, prompt_size=12, num_tokens=30)
    assert cell.difference is None
    assert cell.refusal
    assert cell.passes == 0
    assert cell.accepted >= 5


@pytest.mark.slow
@pytest.mark.parametrize("name", FALL_BACK)
def test_without_trees_a_path_is_verified_in_any_family(name):
    cell = tree_cell(Family(name), 0.8, prompt_size=12, num_tokens=30)
    assert cell.difference is None
    assert cell.passes == 0


@pytest.mark.parametrize("name", ["llama", "llama, sliding"])
def test_without_compaction_the_text_changes(name, monkeypatch):
    """The negative control."""

    def first_rows(rows, fed, kept):
        rows.rollback.drop(len(fed) - len(kept))
        rows.tokens += [fed[row] for row in kept]

    family = Family(name)
    monkeypatch.setattr(CachedRows, "keep", first_rows)
    assert tree_cell(family, 0.0, prompt_size=12, num_tokens=40).difference is not None


def test_passes_of_one_size_take_chains():
    session = Session(tiny(), context=200, reproducible=True)
    prompt, config = prompt_of(20), GenerationConfig(temperature=0.8)
    plain = generate(session, prompt, config, PlainDrafter())
    watched = Watched(session)
    drafter = TreeAdversary(prompt + plain, 3)
    assert generate(session, prompt, config, drafter, num_draft_tokens=7) == plain
    assert len(drafter.given) > 5
    assert watched.passes == 0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_penalties_see_a_nodes_own_path(session, temperature):
    config = GenerationConfig(
        temperature=temperature, repetition_penalty=1.6, frequency_penalty=0.4, penalty_window=9
    )
    prompt = prompt_of(20)
    plain = generate(session, prompt, config, PlainDrafter())
    for seed in range(3):
        watched = Watched(session)
        assert generate(session, prompt, config, TreeAdversary(prompt + plain, seed)) == plain
        assert watched.passes > 5


def started(session, prompt, **options):
    begin(session, prompt, **options)
    return session


def plain_text(session, prompt, count=20):
    return generate(session, prompt, GenerationConfig(), PlainDrafter(), max_tokens=count)


def test_choices_are_by_node_and_the_caches_hold_the_path(session):
    prompt = prompt_of(12)
    right = plain_text(session, prompt)
    wrong = (right[0] + 1) % VOCABULARY
    draft = Draft((wrong, right[0], 5, 6, right[1], right[2]), (-1, -1, 0, 1, 1, 4))
    if right[1] == 6:
        pytest.fail("the draft repeats a sibling; take another token")
    started(session, prompt)
    choices = session.choose(prompt[-1], draft)
    assert [choices[0], choices[2], choices[5], choices[6]] == right[:4]
    assert -1 not in choices
    expected = session.logits([*prompt, wrong, 5]).argmax(axis=-1)
    assert [choices[1], choices[3]] == expected[-2:].tolist()
    verification = verify_match(draft, choices)
    assert verification.accepted == (1, 4, 5)
    session.commit(verification.accepted)
    assert session._rows.tokens == [*prompt, *right[:3]]
    assert {cache.offset for cache in session._rows.caches} == {len(prompt) + 3}
    assert session.choose(right[3], Draft.empty()) == [right[4]]


def test_behind_a_step_in_flight_one_branch_is_fed(session):
    prompt = prompt_of(12)
    right = plain_text(session, prompt)
    wrong = (right[1] + 1) % VOCABULARY
    started(session, prompt)
    session.report_logprobs(0)
    session.choose(prompt[-1], Draft.empty())
    session.commit(())
    draft = Draft(
        (wrong, right[1], 5, right[2], (right[2] + 1) % VOCABULARY, right[3]), (-1, -1, 0, 1, 1, 3)
    )
    choices = session.choose(right[0], draft)
    assert choices == [right[1], -1, right[2], -1, right[3], choices[5], right[4]]
    assert [-1 if one is None else one.token for one in session.logprobs()] == choices
    assert session._drafted.tokens == (right[1], right[2], (right[2] + 1) % VOCABULARY, right[3])
    session.commit((1, 3, 5))
    assert session._rows.tokens == [*prompt, *right[:4]]
    assert session.choose(right[4], Draft.empty()) == [right[5]]


def test_behind_a_step_in_flight_a_branch_may_be_a_chain_or_none(session):
    prompt = prompt_of(12)
    right = plain_text(session, prompt)
    other, third = ((right[1] + step) % VOCABULARY for step in (1, 2))
    started(session, prompt)
    session.choose(prompt[-1], Draft.empty())
    session.commit(())
    refuted = session.choose(right[0], Draft((other, third, 5), (-1, -1, 0)))
    assert refuted == [right[1], -1, -1, -1]
    session.commit(())
    assert session._in_flight is not None
    chosen = session.choose(right[1], Draft((other, right[2], right[3]), (-1, -1, 1)))
    assert chosen == [right[2], -1, right[3], right[4]]
    assert session._drafted.tree is None
    session.commit((1, 2))
    assert session._rows.tokens == [*prompt, *right[:4]]
    assert session.choose(right[4], Draft.empty()) == [right[5]]


def test_candidates_of_a_trees_rows(session):
    prompt = prompt_of(12)
    started(session, prompt)
    session.track_candidates(3)
    draft = Draft((5, 6, 7), (-1, -1, 0))
    choices = session.choose(prompt[-1], draft)
    assert [token for token, _ in session.candidates()] == [prompt[-1], 5, 6, 7]
    assert [ids[0] for _, ids in session.candidates()] == choices
    session.commit(())


def test_a_prompt_after_a_tree_finds_its_beginning(session):
    prompt = prompt_of(30)
    config = GenerationConfig()
    plain = generate(session, prompt, config, PlainDrafter())
    generate(session, prompt, config, TreeAdversary(prompt + plain, 2))
    assert begin(session, [*prompt, *plain[:20], 3], config, 5) >= len(prompt) + 19


def test_the_end_of_the_context_is_kept_to():
    session = Session(tiny(), context=40)
    prompt = prompt_of(20)
    plain = generate(session, prompt, GenerationConfig(), PlainDrafter(), max_tokens=20)
    for seed in range(3):
        drafter = TreeAdversary(prompt + plain, seed, right=1.0)
        assert generate(session, prompt, GenerationConfig(), drafter, max_tokens=20) == plain


def test_an_interrupted_try_starts_afresh(monkeypatch):
    session = Session(tiny(), context=200)
    prompt = prompt_of(20)
    plain = plain_text(session, prompt)
    started(session, prompt)
    with monkeypatch.context() as patch:
        patch.setattr(Trees, "usable", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            session.takes_tree(Draft((1, 2), (-1, -1)))
    assert begin(session, prompt) == 0
    assert plain_text(session, prompt) == plain


def test_close_lets_go_of_a_model_that_was_tried():
    model = tiny()
    session = started(Session(model, context=100), prompt_of(12))
    assert session.takes_tree(Draft((1, 2), (-1, -1)))
    kept = weakref.ref(model.model.layers[0].self_attn.rope)
    del model
    session.close()
    gc.collect()
    assert kept() is None
    mx.clear_cache()


def test_distributions_after_the_nodes_of_a_tree(session):
    """Those along a node's own path, with penalties; `commit` keeps the path's rows."""
    config = GenerationConfig(temperature=2.0, top_k=90, repetition_penalty=3.0, penalty_window=6)
    prompt = prompt_of(12)
    # Siblings that are likely after each other, so that penalties on the wrong one are seen.
    first, second = (int(token) for token in session.logits(prompt)[-1].argsort()[-2:])
    below = int(session.logits([*prompt, second])[-1].argsort()[-1])
    draft = Draft((first, second, below), (-1, -1, 1))
    paths = [(), (first,), (second,), (second, below)]
    started(session, prompt, config=config)
    found = session.distributions(prompt[-1], draft)
    assert found.shape == (4, VOCABULARY)
    session.commit((1, 2))
    after = session.distributions(9, Draft.empty())[0]
    chain = sampler_of(config).chain
    for row, path in zip([*found, after], [*paths, (second, below, 9)], strict=True):
        text = [*prompt, *path]
        logits = mx.array(session.logits(text)[-1:])
        # Filters leave what they keep as it was: it is normed here.
        expected = mx.softmax(chain.log_probabilities(logits, text[-6:]), axis=-1)[0]
        assert mx.abs(mx.array(row.astype("float32")) - expected).max() < 1e-5
        assert row.sum() == pytest.approx(1)
    assert session._rows.tokens == [*prompt, second, below]


def test_distributions_of_a_tree_that_is_not_taken():
    session = started(Session(tiny(), context=100, reproducible=True), prompt_of(12))
    with pytest.raises(ContractError, match="drafted a tree"):
        session.distributions(prompt_of(12)[-1], Draft((1, 2), (-1, -1)))
