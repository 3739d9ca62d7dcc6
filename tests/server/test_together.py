"""Replies that share their passes: each is the reply alone, whoever comes, goes or fails beside it.

Mutants that die here: the logits of sessions handed out in reverse; choices handed to the next
reply; a failed pass that ends one of its replies, or leaves one in its lane; one session's mask or
cache for all, or parts of a shared layer in reverse (the try refuses).

AKUNU_MIXTURES says how many random mixtures the slow test makes of each engine.
"""

import gc
import os
from collections import Counter
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import product
from unittest.mock import Mock
from weakref import WeakKeyDictionary

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kept_worker import Worker
from markov_heads import foreign_head, markov_target, matched_head
from tiny_families import FRAME, VOCABULARY
from toy_engine import END, PLAIN, ToyTokenizer, toy_engine
from turns import run

from akunu_py.engine.engine import Engine
from akunu_py.models.joined import JoinedForward
from akunu_py.models.load import LoadedModel
from akunu_py.models.session import Session
from akunu_py.server.prefix_cache import PrefixCache
from akunu_py.system.errors import AkunuError
from akunu_py.values.load_options import EngineOptions
from akunu_py.values.types import GenerationResult

TEXTS = (
    "a cat and a dog, a cat and a bird. ",
    "one, two, three; one, two, ",
    "a cat and a dog, a cat and a bird. a cat and ",
    "z",
    "0123 4567 0123 45",
    # So long that the context ends before 20 tokens.
    ("hello, hi, " * 9)[:80],
    # With end tokens, so that drafts have them.
    "to be|or not|to be|or not|to be",
)
WAYS = (
    {"drafter": "none"},
    {"drafter": "ngram", "draft_budget": "always"},
    {"drafter": "auto", "draft_budget": "always"},
    *([{"drafter": "tree", "draft_budget": "always"}] if find_spec("akunu_lab") else []),
    {"drafter": "mtp", "draft_budget": "always"},
    {"drafter": "ngram"},
)
SAMPLING = (
    {},
    {"temperature": 0.9},
    {"repetition_penalty": 1.4, "frequency_penalty": 0.3},
    {"temperature": 0.7, "top_p": 0.9, "logprobs": 2},
    {"stop": ("a",), "logprobs": 0},
    {"regex": "[a-g ]{3,9}", "temperature": 1.0},
    {"choices": ("a cat", "a cat and a dog"), "logprobs": 1},
    # No token has capitals: a dead end.
    {"regex": "[a-g ]{3,9}[A-Z]"},
)

CALLS = [("beginning", 1), *product(("_begin_pass", "commit"), range(1, 9))]

REQUESTS = st.fixed_dictionaries(
    {
        "text": st.sampled_from(TEXTS),
        "way": st.sampled_from(WAYS),
        "sampling": st.sampled_from(SAMPLING),
        "max_tokens": st.sampled_from((20, 20, 50, 6, 1)),
        "seed": st.integers(0, 1),
        # Whether it may end by its end token, or most likely does so.
        "bias": st.sampled_from((PLAIN, {}, {END: 2.0})),
        "comes": st.sampled_from((*[0] * 20, *range(20))),  # the round in which it is asked for
        # The rounds after which it is cancelled.
        "leaves": st.sampled_from((*[None] * 12, *range(12))),
        # The call of its session that fails.
        "fails": st.sampled_from((*[None] * 32, *CALLS)),
    }
)


def in_one_way(requests, way):
    """Requests that draft alike, where a way is given: their passes are the widest."""
    return requests if way is None else [request | {"way": way} for request in requests]


MIXTURES = st.builds(
    in_one_way,
    st.integers(2, 8).flatmap(lambda count: st.lists(REQUESTS, min_size=count, max_size=count)),
    st.none() | st.sampled_from(WAYS[:3]),
)


ROUNDED = {"gemma3", "deepseek_v3"}
"""Families whose attention rounds passes of several rows otherwise, alone as well."""


class LostError(AkunuError):
    """What fails a reply in the middle."""


@pytest.fixture(
    scope="module",
    params=["llama", "gemma3", "qwen3_next", "deepseek_v3", ("llama, 8-bit caches", 8)],
    ids=str,
)
def engine(request):
    param = request.param
    name, bits = param if isinstance(param, tuple) else (param, None)
    head = foreign_head(FRAME["hidden_size"], VOCABULARY)
    with toy_engine(name, context=96, head=head, kv_bits=bits) as engine:
        assert engine.joined_passes() is not None
        yield engine


def options_of(request):
    given = {name: request[name] for name in ("max_tokens", "seed")}
    return {**given, "logit_bias": request["bias"], **request["way"], **request["sampling"]}


def prompt_of(engine, request):
    """The ids of a request's text, whose bars are end tokens."""
    first, *others = (engine.prompt_ids(part) for part in request["text"].split("|"))
    return [*first, *(token for part in others for token in (END, *part[1:]))]


@dataclass
class Outcome:
    """What became of a reply; without a result nor an error it was never begun."""

    token_ids: tuple[int, ...]
    result: GenerationResult | None = None
    error: str = ""


def outcome(events):
    made, result = (), None
    try:
        for event in events:
            made += getattr(event, "token_ids", ())
            result = getattr(event, "result", None)
    except AkunuError as error:
        return Outcome(made, error=repr(error))
    return Outcome(made, result)


# By engine rather than its id, which an engine that is gone leaves to a later one.
_alone = WeakKeyDictionary()


def alone(engine, request):
    """The outcome that a request has alone, without drafts."""
    options = {**options_of(request), "drafter": "none"}
    known = _alone.setdefault(engine, {})
    key = request["text"], repr(sorted(options.items()))
    if key not in known:
        engine.forget()
        engine.reset()
        known[key] = outcome(engine.stream(prompt_of(engine, request), **options))
    return known[key]


def mixed(engine, mixture, parallel):
    """Make the replies of a mixture; return their jobs, and the passes that were shared."""
    worker = Worker(engine, parallel=parallel, cache=PrefixCache(1 << 24))
    jobs, begun, calls = {}, {}, Counter()
    shared = []
    forward = JoinedForward.__call__

    def counted(self, rows, *rest):
        shared.append(len(rows))
        return forward(self, rows, *rest)

    def failing(name, sound):
        def call(session, *arguments, **options):
            (job,) = (one.job for one in worker._running if one.lane.session is session)
            place = next(place for place, other in jobs.items() if other is job)
            calls[place, name] += 1
            if (name, calls[place, name]) == mixture[place]["fails"]:
                raise LostError("lost")
            return sound(session, *arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        # Each session that is closed would look for garbage, a fifth of the time of these tests.
        patch.setattr(gc, "collect", lambda: 0)
        patch.setattr(JoinedForward, "__call__", counted)
        for name in dict(CALLS):
            patch.setattr(Session, name, failing(name, getattr(Session, name)))
        try:
            for now in range(400):
                for place, request in enumerate(mixture):
                    if request["comes"] == now:
                        call = engine.check(prompt_of(engine, request), **options_of(request))
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
        found = outcome(jobs[place].events)
        if found.error == repr(LostError("lost")):
            assert request["fails"] is not None
        elif not found.error and (
            found.result is None or found.result.finish_reason == "cancelled"
        ):
            assert request["leaves"] is not None
        else:
            assert found.error == whole.error
            assert found.token_ids == whole.token_ids
            if found.result is not None:
                one, other = found.result, whole.result
                assert (one.text, one.finish_reason) == (other.text, other.finish_reason)
                assert one.constraint_met == other.constraint_met
                assert same_logprobs(engine, one.logprobs, other.logprobs)
        assert whole.token_ids[: len(found.token_ids)] == found.token_ids
    return shared


def same_logprobs(engine, found, expected):
    if found is None or engine.description.name not in ROUNDED:
        return found == expected
    values = [[one.logprob, *(value for _, value in one.top)] for one in found]
    return values == [
        pytest.approx([one.logprob, *(value for _, value in one.top)], abs=1e-5) for one in expected
    ]


@given(mixture=MIXTURES, parallel=st.sampled_from((2, 4, 8)))
@settings(max_examples=12)
def test_every_reply_is_the_one_alone(engine, mixture, parallel):
    check(engine, mixture, parallel)


@pytest.mark.slow
@given(mixture=MIXTURES, parallel=st.sampled_from((2, 4, 8)))
@settings(max_examples=int(os.environ.get("AKUNU_MIXTURES", "80")))
def test_every_reply_is_the_one_alone_in_many_mixtures(engine, mixture, parallel):
    check(engine, mixture, parallel)


def request_of(number, **changes):
    return {
        "text": TEXTS[number % 3], "way": WAYS[number % 2], "sampling": SAMPLING[number % 4],
        "max_tokens": 12, "seed": number, "bias": PLAIN, "comes": 0, "leaves": None, "fails": None,
        **changes,
    }  # fmt: skip


def test_passes_are_shared(engine):
    assert max(check(engine, [request_of(number) for number in range(6)])) == 6


def test_a_pass_that_fails_ends_those_that_shared_it_alone(engine, monkeypatch):
    worker = Worker(engine, parallel=2, cache=PrefixCache(1 << 24))
    prompt, options = engine.prompt_ids(TEXTS[0]), options_of(request_of(0))

    def ask():
        return worker.submit(engine.check(prompt, **options))

    with monkeypatch.context() as patch:
        patch.setattr(JoinedForward, "__call__", Mock(side_effect=LostError("lost")))
        lost = [ask(), ask()]
        assert not all(worker.step() for _ in range(50))
    for job in lost:
        with pytest.raises(LostError):
            list(job.events)
    later = ask()
    run(worker)
    assert outcome(later.events).token_ids == alone(engine, request_of(0)).token_ids
    worker.close()


def test_replies_of_a_model_that_refuses_take_turns(caplog):
    with toy_engine("llama4", context=96) as engine, caplog.at_level("INFO"):
        # Nothing is shared but the two sessions of a try.
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
