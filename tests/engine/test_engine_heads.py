"""An engine that drafts with a model: defaults, what is refused, what is given back.

The model is a prediction head, Gemma 4's assistant or a draft model; each knows what the target says.
Then draft models that know less: the shipped pair, and a smaller model.
"""

import gc
import logging
import threading

import mlx.core as mx
import pytest
from assistants import matched_assistant, write_assistant, write_gemma_folder
from engine_inside import drafting_model, memories_of
from gguf_files import write_tiny_llama
from markov_heads import write_headed_folder
from prediction_heads import write

from akunu_py import ConfigError, Engine, UnsupportedArchitectureError
from akunu_py.drafting import AutoState
from akunu_py.values.constraint import Constraint
from akunu_py.values.types import GenerationConfig

PROMPT = "def hello(world):\n    return world"
PLAIN = {"max_tokens": 30, "stop_loops": False}
SAMPLED = {"temperature": 0.9, "seed": 3}
PENALTIES = {"temperature": 0.9, "seed": 5, "repetition_penalty": 1.2, "top_p": 0.9}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_headed_folder(tmp_path_factory.mktemp("headed") / "model")


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    """A Gemma 4 and its assistant, which lie in folders of their own."""
    folder = tmp_path_factory.mktemp("gemma")
    target = write_gemma_folder(folder / "model")
    write_assistant(folder / "assistant", matched_assistant(target, reads="token"))
    return folder


@pytest.fixture(scope="module", params=["a head", "an assistant", "a draft model"])
def drafting(request, folder, gemma, tiny_gguf):
    """How a model is loaded with another that is always right, and the drafter's name."""
    if request.param == "a head":
        return {"path": folder, "heads": "own"}, "mtp"
    if request.param == "an assistant":
        return {"path": gemma / "model", "heads": gemma / "assistant"}, "mtp"
    return {"path": tiny_gguf, "draft_model": tiny_gguf}, "draft-model"


@pytest.fixture
def options(drafting):
    return {**PLAIN, "drafter": drafting[1]}


@pytest.fixture(scope="module")
def engine(drafting):
    with Engine.load(**drafting[0]) as engine:
        yield engine


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("sampling", [{}, SAMPLED, PENALTIES], ids=["greedy", "sampled", "all"])
def test_every_guess_is_right_and_the_text_the_same(engine, options, sampling):
    plain = engine.generate(PROMPT, drafter="none", **PLAIN, **sampling)
    drafted = engine.generate(PROMPT, draft_budget="always", **options, **sampling)
    assert drafted.token_ids == plain.token_ids
    assert drafted.exactness == "stream"
    assert drafted.stats.alpha == 1.0
    # A reply may end before its limit, at an end token that was drawn.
    assert drafted.stats.drafted > 2 / 3 * len(plain.token_ids)
    assert engine.generate(PROMPT, **options, **sampling).token_ids == plain.token_ids


def test_auto_asks_it_where_it_was_loaded(engine, options):
    stream = engine.stream(PROMPT, draft_budget="always", **PLAIN)
    assert stream.config.drafter == "auto"
    sources = {one.source for event in stream for one in event.step.detail.drafted}
    assert options["drafter"] in sources
    assert engine.generate(PROMPT, drafter="ngram", **PLAIN).text


@pytest.mark.lab
def test_drafts_by_probability_are_drawn_not_copied(engine, options):
    config = engine.stream(PROMPT, draft_sampling="rejection", **PLAIN).config
    assert config.drafter == options["drafter"]


def test_a_conversation_goes_on(engine, options):
    messages = [{"role": "user", "content": "Hello there."}]
    for _ in range(3):
        found = engine.chat(messages, draft_budget="always", **options)
        assert found.stats.alpha == 1.0
        messages += [
            {"role": "assistant", "content": found.text},
            {"role": "user", "content": "And then?"},
        ]


@pytest.mark.fast_every(2)
@pytest.mark.parametrize("sampling", [{}, SAMPLED, PENALTIES], ids=["greedy", "sampled", "all"])
def test_auto_leaves_the_text_as_it_is(engine, sampling):
    plain = engine.generate(PROMPT, drafter="none", **PLAIN, **sampling)
    for budget in ("always", "auto", "always"):
        drafted = engine.generate(PROMPT, draft_budget=budget, **PLAIN, **sampling)
        assert drafted.token_ids == plain.token_ids
        assert drafted.exactness == "stream"
        if budget == "always":
            assert drafted.stats.accepted > 10


@pytest.mark.parametrize("auto", [False, True])
def test_a_constrained_reply(engine, options, auto):
    form = {"constraint": Constraint.regex("(yes|no), [a-z ]{12}"), "max_tokens": 20}
    plain = engine.generate(PROMPT, drafter="none", **form)
    model = drafting_model(engine)
    passes = model.num_passes
    drafter = "auto" if auto else options["drafter"]
    drafted = engine.generate(PROMPT, drafter=drafter, draft_budget="always", **form)
    assert drafted.text == plain.text
    assert drafted.constraint_met
    # It was asked for more than what must come next.
    assert model.num_passes > passes + 5


@pytest.mark.fast_every(2)
def test_replies_in_turns_have_caches_of_their_own(engine, options):
    """As a server makes them."""
    prompts = [engine.prompt_ids(text) for text in (PROMPT, "the world", "a")]
    config = GenerationConfig(draft_budget="always", **options)
    plain = [engine.generate(ids, config, drafter="none").token_ids for ids in prompts]
    lanes = [engine.lane() for _ in prompts]
    for _ in range(2):
        turns = [
            lane.turns(engine.check(ids, config), AutoState(), threading.Event())
            for lane, ids in zip(lanes, prompts, strict=True)
        ]
        results = [None] * len(turns)
        while not all(results):
            for place, events in enumerate(turns):
                event = next(events, None)
                if event is not None and event.result is not None:
                    results[place] = event.result
        assert [result.token_ids for result in results] == plain
        assert all(result.stats.alpha == 1.0 for result in results)
    for lane in lanes:
        lane.close()


def test_a_reply_can_be_read_in_another_thread(engine, options):
    plain = engine.generate(PROMPT, drafter="none", **PLAIN).token_ids
    stream = engine.stream(PROMPT, draft_budget="always", **options)
    found = list(next(stream).token_ids)
    for _ in range(2):
        reader = threading.Thread(target=lambda: found.extend(next(stream).token_ids))
        reader.start()
        reader.join()
    found += [token for event in stream for token in event.token_ids]
    assert tuple(found) == plain
    assert stream.result.stats.drafted > 0


def test_reproducible_passes(drafting, options):
    with Engine.load(**drafting[0], reproducible=True) as engine:
        plain = engine.generate(PROMPT, drafter="none", **PLAIN)
        drafted = engine.generate(PROMPT, draft_budget="always", **options)
        assert drafted.token_ids == plain.token_ids
        assert drafted.stats.alpha == 1.0


@pytest.mark.lab
def test_rejection_sampling_accepts_what_was_drawn_from_the_same_distribution(engine, options):
    sampling = {"temperature": 0.9, "seed": 3, "draft_sampling": "rejection"}
    found = engine.generate(PROMPT, draft_budget="always", **options, **sampling)
    assert found.exactness == "distribution"
    assert found.stats.alpha == 1.0


def test_a_head_from_another_place(folder, tmp_path):
    alone = write_headed_folder(tmp_path / "alone", with_head=False)
    with Engine.load(alone, heads=folder) as engine:
        assert engine.has_head
        found = engine.generate(PROMPT, draft_budget="always", drafter="mtp", **PLAIN)
        assert found.stats.alpha == 1.0
    with Engine.load(folder) as engine:
        assert not engine.has_head
        with pytest.raises(ConfigError, match="mtp needs a prediction head, and none was loaded"):
            engine.generate(PROMPT, drafter="mtp")


def test_what_is_refused(folder, gemma, tiny_gguf, tmp_path):
    with pytest.raises(ConfigError, match="comes without a prediction head; name a file"):
        Engine.load(gemma / "model", heads="own")
    with pytest.raises(UnsupportedArchitectureError, match="is an assistant for Gemma 4, and"):
        Engine.load(folder, heads=gemma / "assistant")
    for model in (write_headed_folder(tmp_path / "alone", with_head=False), tiny_gguf):
        with pytest.raises(ConfigError, match="comes without a prediction head; name a file"):
            Engine.load(model, heads="own")
    with pytest.raises(ConfigError, match=r"nowhere does not exist; give a GGUF or safetensors"):
        Engine.load(folder, heads=tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="does not draft for a model on several ranks"):
        Engine.load(folder, heads="own", ranks=object())
    wide = write_tiny_llama(tmp_path / "wide.gguf", width=64, heads=2)
    vectors = write(tmp_path / "look.safetensors", {"look_ahead": mx.ones((3, 64))})
    Engine.load(wide, heads=vectors).close()
    words = "look.safetensors' reads the model's own cache, which kv_bits 4 quant.*; leave out head"
    with pytest.raises(ConfigError, match=words):
        Engine.load(wide, heads=vectors, kv_bits=4)


def test_closing_gives_its_memory_back(drafting, options):
    gc.collect()
    mx.clear_cache()
    start = mx.get_active_memory()
    engine = Engine.load(**drafting[0])
    engine.generate(PROMPT, draft_budget="always", **options)
    engine.close()
    gc.collect()
    assert mx.get_active_memory() - start < 1e5


def test_the_budget_knows_what_it_costs(engine, options):
    """It asks before each token, and keeps the model's own times under the drafter's name."""
    for drafter in (options["drafter"], "auto"):
        engine.generate(PROMPT, **PLAIN, drafter=drafter)
        times = memories_of(engine).costs.state.drawing[drafter].times
        assert times.drafts
        assert times.tokens


MESSAGES = [{"role": "user", "content": "Write a function that adds two numbers."}]
WEAK_PENALTIES = {"repetition_penalty": 1.15, "frequency_penalty": 0.1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "drafter"),
    [
        ({}, "draft-model"),
        ({"temperature": 0.7, "seed": 5}, "draft-model"),
        ({"temperature": 1.3, "seed": 6, **WEAK_PENALTIES}, "draft-model"),
        pytest.param(
            {"temperature": 0.7, "seed": 7, "top_p": 0.9}, "draft-model-ngram",
            marks=pytest.mark.lab,
        ),
    ],
    ids=["greedy", "0.7", "1.3, penalties", "0.7, hierarchical"],
)  # fmt: skip
def test_the_shipped_pair_says_what_the_model_says_alone(pair, options, drafter):
    options = {"max_tokens": 20, **options}
    plain = pair.chat(MESSAGES, drafter="none", **options)
    for budget in ("always", "auto"):
        drafted = pair.chat(MESSAGES, drafter=drafter, draft_budget=budget, **options)
        assert drafted.token_ids == plain.token_ids
        assert drafted.exactness == "stream"
        if budget == "always":
            assert drafted.stats.accepted > 2
            assert drafted.stats.tokens_per_pass > 1.05


def test_a_misspelt_name_is_named(tiny_pair):
    with pytest.raises(ConfigError, match="did you mean 'draft-model'"):
        tiny_pair.generate(PROMPT, drafter="draft_model")


@pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "seed": 4, **WEAK_PENALTIES}])
def test_auto_with_a_draft_model_leaves_the_text_as_it_is(tiny_pair, options):
    plain = tiny_pair.generate(PROMPT, max_tokens=40, drafter="none", **options)
    for budget in ("always", "auto"):
        drafted = tiny_pair.generate(PROMPT, max_tokens=40, draft_budget=budget, **options)
        assert drafted.token_ids == plain.token_ids
        assert drafted.exactness == "stream"


def test_a_draft_model_as_large_as_the_model_is_warned_of(tiny_gguf, caplog):
    with caplog.at_level(logging.WARNING), Engine.load(tiny_gguf, draft_model=tiny_gguf):
        assert "drafting with it will hardly pay" in caplog.text


def test_a_prompt_is_fed_to_the_draft_model_once(tiny_pair):
    """A conversation goes on: the draft model, too, feeds what is new alone."""
    drafts = drafting_model(tiny_pair)
    first = tiny_pair.generate(PROMPT, max_tokens=20, draft_budget="always")
    ids = [*tiny_pair.tokenizer.encode(PROMPT, parse_special=True), *first.token_ids]
    fed, feed = [], drafts._rows.feed_apart
    drafts._rows.feed_apart = lambda tokens: (fed.append(len(tokens)), feed(tokens))[1]
    try:
        tiny_pair.generate([*ids, 7, 8, 9], max_tokens=4, draft_budget="always")
    finally:
        drafts._rows.feed_apart = feed
    assert sum(fed) <= 2 + 8


def test_cancelling_while_the_draft_model_takes_the_prompt_in(tiny_pair):
    stream = tiny_pair.stream("the world " * 40, max_tokens=20, draft_budget="always")
    drafts = drafting_model(tiny_pair)
    beginning = drafts.beginning

    def cancelled(prompt, sampling):
        stream.cancel()
        yield from beginning(prompt, sampling)

    drafts.beginning = cancelled
    try:
        events = list(stream)
    finally:
        del drafts.beginning
    assert events[-1].result.finish_reason == "cancelled"
    assert not events[-1].result.token_ids
    assert tiny_pair.generate(PROMPT, max_tokens=5).token_ids


def test_a_draft_model_with_a_shorter_context(tiny_gguf, tmp_path):
    draft = write_tiny_llama(tmp_path / "short.gguf", tied=False, seed=3, context=32)
    with Engine.load(tiny_gguf, draft_model=draft) as engine:
        plain = engine.generate(PROMPT, max_tokens=60, drafter="none")
        options = {"draft_budget": "always", "drafter": "draft-model"}
        found = engine.generate(PROMPT, max_tokens=60, **options)
        assert found.token_ids == plain.token_ids
        assert 0 < found.stats.steps_with_draft < found.stats.steps / 2
        # A prompt longer than it holds: nothing is drafted at all.
        long = engine.generate("the world " * 30, max_tokens=5, **options)
        assert long.stats.drafted == 0
