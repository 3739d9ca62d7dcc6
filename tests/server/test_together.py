"""Replies that share their passes: each is the reply alone, whoever comes, goes or fails beside it.

Mutants that die here: the logits of sessions handed out in reverse; choices handed to the next
reply; a failed pass that ends one of its replies, or leaves one in its lane; one session's mask or
cache for all, or parts of a shared layer in reverse (the try refuses).
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markov_heads import markov_target, matched_head
from toy_engine import PLAIN, ToyTokenizer, toy_engine
from turns import run

from akunu_py.engine.engine import Engine
from akunu_py.models import joined
from akunu_py.models.joined import JoinedForward
from akunu_py.models.load import LoadedModel
from akunu_py.server.prefix_cache import PrefixCache
from akunu_py.server.worker import Worker
from akunu_py.values.load_options import EngineOptions

TEXTS = (
    "a cat and a dog, a cat and a bird. ",
    "one, two, three; one, two, ",
    "a cat and a dog, a cat and a bird. a cat and ",
    "z",
    "0123 4567 0123 45",
)
WAYS = (
    {"drafter": "none"},
    {"drafter": "ngram", "draft_budget": "always"},
    {"drafter": "auto", "draft_budget": "always"},
    {"drafter": "tree", "draft_budget": "always"},
    {"drafter": "ngram"},
)
SAMPLING = (
    {},
    {"temperature": 0.9},
    {"repetition_penalty": 1.4, "frequency_penalty": 0.3},
    {"temperature": 0.7, "top_p": 0.9, "logprobs": 2},
    {"stop": ("a",), "logprobs": 0},
)

REQUESTS = st.fixed_dictionaries(
    {
        "text": st.sampled_from(TEXTS),
        "way": st.sampled_from(WAYS),
        "sampling": st.sampled_from(SAMPLING),
        "max_tokens": st.integers(1, 20),
        "seed": st.integers(0, 3),
        "ends": st.booleans(),  # whether it may end by its end token
        "comes": st.integers(0, 25),  # the round in which it is asked for
        "leaves": st.none() | st.integers(0, 12),  # the rounds after which it is cancelled
        "fails": st.none() | st.integers(1, 8),  # the pass in which it fails
    }
)
MIXTURES = st.lists(REQUESTS, min_size=2, max_size=8)


ROUNDED = {"gemma3", "deepseek_v3"}
"""Families whose attention rounds passes of several rows otherwise, alone as well."""


class LostError(Exception):
    """What fails a reply in the middle."""


@pytest.fixture(
    scope="module",
    params=["llama", "gemma3", "qwen3_next", "deepseek_v3", ("llama, 8-bit caches", 8)],
    ids=str,
)
def engine(request):
    name, bits = request.param if isinstance(request.param, tuple) else (request.param, None)
    with toy_engine(name, context=96, kv_bits=bits) as engine:
        assert engine.joined_passes() is not None
        yield engine


def options_of(request):
    options = {**request["way"], **request["sampling"]}
    if not request["ends"]:
        options["logit_bias"] = PLAIN
    return {"max_tokens": request["max_tokens"], "seed": request["seed"], **options}


_alone = {}


def alone(engine, request):
    """The reply that a request has alone, without drafts."""
    options = {**options_of(request), "drafter": "none"}
    key = id(engine), request["text"], repr(sorted(options.items()))
    if key not in _alone:
        engine.forget()
        engine.reset()
        _alone[key] = engine.generate(engine.prompt_ids(request["text"]), **options)
    return _alone[key]


def mixed(engine, mixture, parallel):
    """Make the replies of a mixture; return their jobs, and the passes that were shared."""
    worker = Worker(engine, parallel=parallel, cache=PrefixCache(1 << 24))
    jobs, begun, passes = {}, {}, {}
    shared = []
    forward, begin = JoinedForward.__call__, joined.Session._begin_pass

    def counted(self, rows, *rest):
        shared.append(len(rows))
        return forward(self, rows, *rest)

    def failing(session, last, draft):
        (job,) = (one.job for one in worker._running if one.lane.session is session)
        place = next(place for place, other in jobs.items() if other is job)
        passes[place] = passes.get(place, 0) + 1
        if passes[place] == mixture[place]["fails"]:
            raise LostError
        begin(session, last, draft)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JoinedForward, "__call__", counted)
        patch.setattr(joined.Session, "_begin_pass", failing)
        try:
            for now in range(400):
                for place, request in enumerate(mixture):
                    if request["comes"] == now:
                        prompt = engine.prompt_ids(request["text"])
                        call = engine.check(prompt, **options_of(request))
                        jobs[place], begun[place] = worker.submit(call, client=str(place)), now
                    elif place in jobs and now - begun[place] == request["leaves"]:
                        jobs[place].cancel()
                if not worker.step() and now > max(one["comes"] for one in mixture):
                    break
            run(worker)
        finally:
            worker.close()
    return jobs, shared


def check(engine, mixture, parallel=8):
    expected = [alone(engine, request) for request in mixture]
    jobs, shared = mixed(engine, mixture, parallel)
    for place, (request, whole) in enumerate(zip(mixture, expected, strict=True)):
        events = []
        try:
            events += jobs[place].events
        except LostError:
            assert request["fails"] is not None
            made = [token for event in events for token in getattr(event, "token_ids", ())]
            assert whole.token_ids[: len(made)] == tuple(made)
            continue
        if not events or getattr(events[-1], "result", None) is None:
            assert request["leaves"] is not None
            continue
        result = events[-1].result
        if result.finish_reason == "cancelled":
            assert request["leaves"] is not None
            assert whole.token_ids[: len(result.token_ids)] == result.token_ids
            continue
        assert result.token_ids == whole.token_ids
        assert (result.text, result.finish_reason) == (whole.text, whole.finish_reason)
        assert same_logprobs(engine, result.logprobs, whole.logprobs)
    return shared


def same_logprobs(engine, found, expected):
    if found is None or engine.description.name not in ROUNDED:
        return found == expected
    values = [[one.logprob, *(value for _, value in one.top)] for one in found]
    return values == [
        pytest.approx([one.logprob, *(value for _, value in one.top)], abs=1e-5) for one in expected
    ]


@given(mixture=MIXTURES, parallel=st.integers(2, 8))
@settings(max_examples=12)
def test_every_reply_is_the_one_alone(engine, mixture, parallel):
    check(engine, mixture, parallel)


@pytest.mark.slow
@given(mixture=MIXTURES, parallel=st.integers(2, 8))
@settings(max_examples=120)
def test_every_reply_is_the_one_alone_in_many_mixtures(engine, mixture, parallel):
    check(engine, mixture, parallel)


def request_of(number, **changes):
    return {
        "text": TEXTS[number % 3], "way": WAYS[number % 2], "sampling": SAMPLING[number % 4],
        "max_tokens": 12, "seed": number, "ends": False, "comes": 0, "leaves": None, "fails": None,
        **changes,
    }  # fmt: skip


def test_passes_are_shared(engine):
    shared = check(engine, [request_of(number) for number in range(6)])
    assert max(shared) == 6


def test_a_pass_that_fails_ends_those_that_shared_it_alone(engine, monkeypatch):
    def fail(*_):
        raise LostError

    worker = Worker(engine, parallel=2, cache=PrefixCache(1 << 24))
    prompt, options = engine.prompt_ids(TEXTS[0]), options_of(request_of(0))

    def ask():
        return worker.submit(engine.check(prompt, **options))

    with monkeypatch.context() as patch:
        patch.setattr(JoinedForward, "__call__", fail)
        lost = [ask(), ask()]
        assert not all(worker.step() for _ in range(50))
    for job in lost:
        with pytest.raises(LostError):
            list(job.events)
    later = ask()
    run(worker)
    assert list(later.events)[-1].result.token_ids == alone(engine, request_of(0)).token_ids
    worker.close()


def test_replies_of_a_model_that_refuses_take_turns(caplog):
    with toy_engine("mistral3", context=96) as engine, caplog.at_level("INFO"):
        # Nothing is shared but the two sessions of the try.
        assert check(engine, [request_of(number) for number in range(4)]) == [2]
        assert engine.joined_passes() is None
        assert f"replies take turns: {engine.takes_turns}" in caplog.text


def test_a_head_gets_the_states_of_its_own_reply():
    """The head is right about what follows a state; another reply's state says something else."""
    target = markov_target()
    description = toy_engine().description
    loaded = LoadedModel(target, ToyTokenizer(), replace(description, name="markov"))
    way = {"drafter": "mtp", "draft_budget": "always", "max_tokens": 30, "logit_bias": PLAIN}
    shared, forward = [], JoinedForward.__call__

    def counted(self, rows, *rest):
        shared.append(len(rows))
        return forward(self, rows, *rest)

    with (
        Engine(
            loaded, EngineOptions(context=256), head=matched_head(target, reads="state")
        ) as engine,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(JoinedForward, "__call__", counted)
        worker = Worker(engine, parallel=4, cache=PrefixCache(0))
        jobs = [
            worker.submit(engine.check([10 + place, 11, 12 + place], **way)) for place in range(4)
        ]
        run(worker)
        results = [list(job.events)[-1].result for job in jobs]
        worker.close()
        for place, result in enumerate(results):
            found = engine.generate([10 + place, 11, 12 + place], **way)
            assert result.token_ids == found.token_ids
            assert result.stats.drafted == found.stats.drafted
            assert result.stats.accepted == found.stats.accepted > 10
    assert max(shared) == 4
