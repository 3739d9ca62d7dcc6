"""Several proposals of the shipped draft model: streams, trees that are verified, refusals."""

import pytest

from akunu_py import ConfigError

MESSAGES = [{"role": "user", "content": "Write a function that adds two numbers."}]
PENALTIES = {"repetition_penalty": 1.15, "frequency_penalty": 0.1}
PROMPT = "def hello(world):\n    return world"


def trees_of(engine, prompt, **options):
    """The tokens of a reply, and the shapes of the drafts that were verified."""
    shapes, stream = [], engine.stream(prompt, **options)
    for event in stream:
        if event.step is not None and event.step.detail is not None:
            shapes.append(tuple(drafted.parent for drafted in event.step.detail.drafted))
    return stream.result, shapes


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.7, "seed": 5},
        {"temperature": 1.3, "seed": 6, **PENALTIES},
    ],
    ids=["greedy", "0.7", "1.3, penalties"],
)
def test_proposals_leave_the_stream_alone(pair, options):
    options = {"max_tokens": 28, **options}
    plain = pair.chat(MESSAGES, drafter="none", **options)
    one = pair.chat(
        MESSAGES, drafter="draft-model", draft_budget="always", num_draft_tokens=3, **options
    )
    for budget in ("always", "auto"):
        found = pair.chat(
            MESSAGES, num_proposals=3, num_draft_tokens=9, draft_budget=budget, **options
        )
        assert found.token_ids == plain.token_ids
        assert found.exactness == "stream"
        if budget == "always":
            # As deep as the chain, and broader: more is accepted, or as much.
            assert found.stats.steps < one.stats.steps or options.get("temperature") == 0.7
            assert found.stats.steps <= one.stats.steps


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["coupled", "rejection"])
def test_trees_are_verified_where_the_model_takes_them(tiny_pair, sampling):
    result, shapes = trees_of(
        tiny_pair, PROMPT, num_proposals=2, draft_sampling=sampling, draft_budget="always",
        temperature=0.9, seed=4, max_tokens=40,
    )  # fmt: skip
    assert any(-1 in shape[1:] for shape in shapes)
    assert result.exactness == ("stream" if sampling == "coupled" else "distribution")
    assert result.stats.accepted > 0


@pytest.mark.slow
def test_proposals_by_rejection_at_temperature_0_are_greedy_decoding(tiny_pair):
    plain = tiny_pair.generate(PROMPT, max_tokens=40, drafter="none")
    for budget in ("always", "auto"):
        found = tiny_pair.generate(
            PROMPT, max_tokens=40, num_proposals=4, draft_sampling="rejection", draft_budget=budget
        )
        assert found.token_ids == plain.token_ids
        assert budget == "auto" or found.stats.drafted > 0


def test_drafters_that_propose_one_token_say_so(tiny_pair):
    for drafter in ("ngram", "ngram-draft-model", "none"):
        with pytest.raises(
            ConfigError, match="has no num_proposals; leave it out, or choose from draft-model"
        ):
            tiny_pair.generate(PROMPT, drafter=drafter, num_proposals=2)
    for number in (0, 9):
        with pytest.raises(ConfigError, match=f"num_proposals is {number}; give 1 to 8"):
            tiny_pair.generate(PROMPT, num_proposals=number)
