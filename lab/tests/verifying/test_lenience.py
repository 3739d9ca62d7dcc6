"""Lenience and `adjust` through the engine: what they accept, and what is said of it.

That no sampled token comes out with more than p / l is enumerated in `test_rejection.py`.
Mutants, made by hand, that these tests kill: p from the one-hot rows of greedy decoding; p without
penalties; the inequality the other way round; lenience or adjust not passed to the verifier; a
reply marked by its verifier's `exact` at lenience 1 and "stream" below; q asked of coupled drafts.
"""

import functools

import pytest
from pairwise import all_pairs

from akunu_lab.adjustment import Adjustment
from akunu_py import ConfigError, GenerationConfig
from akunu_py.decoding.loop import make_verifier

MESSAGES = [{"role": "user", "content": "Write a function that adds two numbers."}]
SAMPLED = {"temperature": 0.8, "seed": 3, "draft_sampling": "rejection"}
PENALTIES = {"repetition_penalty": 1.2, "frequency_penalty": 0.1, "logit_bias": {7: 1.5}}
# So near to 1 that no token lies between, yet decided by the lenient rules.
NEARLY_1 = 1 - 1e-9


def reply(engine, **options):
    """A reply of a conversation, and the details of its steps."""
    options = {"draft_budget": "always", "max_tokens": 32, **options}
    stream = engine.stream_chat(MESSAGES, **options)
    steps = [event.step.detail for event in stream if event.step is not None]
    return stream, stream.result, steps


@pytest.fixture(scope="module")
def exact(pair):
    """Replies by the exact rules, which lenient ones are compared with; made once."""
    named = {"greedy": {}, "penalties": PENALTIES, "sampled": SAMPLED}
    return functools.cache(lambda name: reply(pair, drafter="draft-model", **named[name])[1:])


def alpha(steps):
    """The share of tested draft tokens that were accepted."""
    outcomes = [drafted.accepted for step in steps for drafted in step.drafted]
    tested = [accepted for accepted in outcomes if accepted is not None]
    return sum(tested) / len(tested)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lenience": 0}, "lenience is 0"),
        ({"lenience": 1.5}, "lenience is 1.5"),
        ({"lenience": -0.1}, "lenience is -0.1"),
        ({"lenience": float("nan")}, "lenience is nan"),
        ({"lenience": True}, "lenience is True"),
        ({"lenience": 0.5, "temperature": 0.8}, "set draft_sampling to 'rejection', or temp"),
        ({"adjust": 0}, "adjust is 0"),
        ({"adjust": False}, "a temperature above 0"),
        ({"adjust": False, "temperature": 0.8}, "draft_sampling to 'rejection'"),
        ({"adjust": False, "draft_sampling": "rejection"}, "a temperature above 0"),
    ],
)
def test_what_cannot_be_meant_is_an_error(options, words):
    with pytest.raises(ConfigError, match=words):
        GenerationConfig().with_values(options)


@pytest.mark.parametrize(
    ("options", "name", "exactness"),
    [
        ({}, None, "stream"),
        ({"draft_sampling": "rejection"}, "rejection", "distribution"),
        (SAMPLED, "rejection", "distribution"),
        ({"lenience": 0.5}, "lenient-greedy", "none"),
        ({"lenience": 0.5, "draft_sampling": "rejection"}, "lenient-greedy", "none"),
        ({**SAMPLED, "lenience": 0.5}, "lenient", "none"),
        ({**SAMPLED, "adjust": False}, "rejection-unadjusted", "none"),
    ],
)
def test_what_is_said_is_what_the_verifier_is(options, name, exactness):
    config = GenerationConfig().with_values(options)
    assert config.exactness == exactness
    if name is None:
        assert make_verifier(config, 1).by_choice
        return
    rule = make_verifier(config, 1).decode.keywords["rule"]
    assert rule.name == name
    assert rule.exact == (exactness == "distribution")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [("greedy", {}), ("penalties", PENALTIES), ("sampled", SAMPLED)],
)
def test_at_the_end_of_its_range_it_is_the_exact_rule(pair, exact, name, options):
    expected, steps = exact(name)
    _, lenient, as_lenient = reply(pair, drafter="draft-model", lenience=NEARLY_1, **options)
    assert lenient.token_ids == expected.token_ids
    assert alpha(as_lenient) == alpha(steps)
    assert expected.exactness != "none"
    assert lenient.exactness == "none"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [("greedy", {}), ("penalties", PENALTIES)])
def test_greedy_lenience_takes_what_is_likely_enough(pair, exact, name, options):
    """Recomputed from the model's logits; what it refuses is not likely enough."""
    lenience = 0.1
    stream, result, steps = reply(pair, drafter="draft-model", lenience=lenience, **options)
    assert result.exactness == "none"
    assert alpha(steps) > alpha(exact(name)[1]) + 0.1
    text = [*stream.prompt, *result.token_ids]
    logits = pair.logits(text)
    # The transforms of greedy decoding, and the temperature at which p is compared.
    adjust = Adjustment.from_config(stream.config, temperature=1.0)
    taken = refused = unlikeliest = 0
    for step in steps:
        for place, drafted in enumerate(step.drafted):
            if drafted.accepted is None:
                break
            at = step.position + place
            p = adjust.probabilities(logits[at - 1], text[:at])
            assert drafted.p == pytest.approx(p[drafted.token], rel=1e-3)
            share = p[drafted.token] / p.max()
            if drafted.accepted:
                assert share >= lenience * (1 - 1e-4)
                taken, unlikeliest = taken + 1, unlikeliest + (share < 1)
            else:
                assert share < lenience * (1 + 1e-4)
                refused += 1
                assert step.token == int(p.argmax())
    assert min(taken, refused, unlikeliest) > 0


@pytest.mark.slow
def test_sampled_lenience_accepts_by_p_over_l_q(pair, exact):
    lenience = 0.3
    _, result, steps = reply(pair, drafter="draft-model", lenience=lenience, **SAMPLED)
    assert result.exactness == "none"
    assert alpha(steps) > alpha(exact("sampled")[1])
    trials = [drafted for step in steps for drafted in step.drafted if drafted.accepted is not None]
    for drafted in trials:
        assert drafted.accepted == (drafted.uniform < drafted.p / (lenience * drafted.q))
    assert any(drafted.accepted and drafted.uniform >= drafted.ratio for drafted in trials)


@pytest.mark.slow
def test_without_the_residual_all_is_drawn_from_the_target(pair, exact):
    adjusted, exact_steps = exact("sampled")
    _, result, steps = reply(pair, drafter="draft-model", adjust=False, **SAMPLED)
    assert (adjusted.exactness, result.exactness) == ("distribution", "none")
    assert "residual" in {step.origin for step in exact_steps}
    assert {step.origin for step in steps} == {"target"}
    assert "recovered" in {step.kind for step in steps}


@pytest.mark.fast_every(3)
@pytest.mark.parametrize(
    ("drafter", "budget", "options"),
    all_pairs(
        ("auto", "lookup", "recycling", "tree", "draft-model-ngram"),
        ("auto", "always"),
        ({}, SAMPLED),
    ),
)
def test_every_drafter_can_be_taken_leniently(pair, drafter, budget, options):
    options = {"lenience": 0.2, "max_tokens": 12, **options}
    result = pair.chat(MESSAGES, drafter=drafter, draft_budget=budget, **options)
    assert result.exactness == "none"
    assert len(result.token_ids) == 12
    assert budget == "auto" or result.stats.drafted > 0


def test_a_draft_temperature_is_not_held_against_the_reply(pair):
    """The draft's own temperature may be one that the reply's rules do not allow."""
    for options in (
        {"draft_temperature": 0.8, "lenience": 0.5},
        {"draft_temperature": 0.0, "adjust": False, **SAMPLED},
    ):
        result = pair.chat(MESSAGES, drafter="draft-model", max_tokens=12, **options)
        assert result.exactness == "none"
