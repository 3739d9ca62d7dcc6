"""Many prompts at once: each reply is the one alone, whatever the others do.

Mutants that die here: lanes closed before their replies; replies left open; no choices joined;
prompts taken before there is a place.
"""

from contextlib import contextmanager
from threading import Thread

import pytest
from small_limits import set_turns, set_waits
from toy_engine import PLAIN, toy_engine

from akunu_py import ConfigError, ContextOverflowError, EngineStateError
from akunu_py.models.cached_rows import Passes
from akunu_py.models.joined import JoinedForward
from akunu_py.models.session import Session

TEXTS = (
    "a cat and a dog, a cat and a bird. ",
    "one, two, three; one, two, ",
    "a cat and a dog, a cat and a bird. a cat and ",
    "z",
    "0123 4567 0123 45",
    "one, two, three; one, two, three; one, ",
)
OPTIONS = {"max_tokens": 12, "seed": 3, "logit_bias": PLAIN}


@pytest.fixture(params=["llama", "qwen3_next", "llama4"])
def engine(request):
    """An engine; passes of the last model are not joined."""
    with toy_engine(request.param, context=96) as engine:
        yield engine


@pytest.fixture
def shared(monkeypatch):
    """The numbers of sessions of joined passes."""
    found = []
    forward = JoinedForward.__call__

    def counted(self, parts):
        found.append(len(parts))
        return forward(self, parts)

    monkeypatch.setattr(JoinedForward, "__call__", counted)
    return found


def alone(engine, text, **options):
    engine.forget()
    engine.reset()
    return engine.generate(text, **{**OPTIONS, **options})


def said(result):
    return result.token_ids, result.text, result.finish_reason, result.logprobs


@pytest.mark.parametrize(
    ("streams", "options"),
    [
        (1, {"temperature": 0.8}),
        (8, {"drafter": "ngram", "draft_budget": "always"}),
        (3, {"temperature": 0.8, "repetition_penalty": 1.3, "logprobs": 2}),
        (3, {"stop": ("a",), "drafter": "auto", "draft_budget": "always"}),
    ],
)
def test_every_reply_is_the_one_alone(engine, shared, options, streams):
    expected = [said(alone(engine, text, **options)) for text in TEXTS]
    joins = engine.joined_passes() is not None
    del shared[:]
    found = dict(engine.generate_many(iter(TEXTS), streams=streams, **OPTIONS, **options))
    assert [said(found[place]) for place in range(len(TEXTS))] == expected
    assert bool(shared) == (joins and streams > 1)
    assert max(shared, default=1) <= streams


def test_reproducible_replies_share_no_pass(shared):
    """A block beside others may have other bits than alone, whatever the passes are padded to."""
    with toy_engine("llama", context=96, reproducible=True) as engine:
        expected = [said(alone(engine, text)) for text in TEXTS]
        found = dict(engine.generate_many(TEXTS, **OPTIONS))
        assert [said(found[place]) for place in range(len(TEXTS))] == expected
    assert not shared


def test_it_is_said_that_replies_take_turns(caplog, monkeypatch):
    caplog.set_level("INFO")
    with toy_engine() as engine:
        assert engine.joined_passes() is not None
    assert "take turns" not in caplog.text
    with toy_engine(reproducible=True) as engine:
        assert engine.joined_passes() is None
        assert engine.takes_turns == "they are reproducible"
    assert "take turns, since they are reproducible" in caplog.text
    # The passes of rank 0.
    monkeypatch.setattr(Passes, "joins", False)
    with toy_engine() as engine:
        assert engine.joined_passes() is None
    assert "take turns, since they run on several machines" in caplog.text


def test_replies_draft_that_were_never_alone():
    """Nobody has measured a plain step then; the pass of all tells how long one takes."""
    options = {"drafter": "ngram", "max_tokens": 40, "logit_bias": PLAIN}
    with toy_engine("llama", context=96) as engine:
        found = dict(engine.generate_many([TEXTS[0]] * 6, **options))
    assert all(one.stats.drafted for one in found.values())


def test_each_reply_has_its_own_place_in_a_form(shared_engine):
    options = {"regex": "[a-e]{2,9}[f-i ]{3}", "max_tokens": 20, "temperature": 1.2, "seed": 5}
    expected = [said(shared_engine.generate(text, **options)) for text in TEXTS]
    found = dict(shared_engine.generate_many(TEXTS, **options))
    assert [said(found[place]) for place in range(len(TEXTS))] == expected
    assert all(one.constraint_met for one in found.values())


def test_replies_come_as_they_end_and_prompts_are_taken_as_places_get_free(engine):
    limits, taken = (9, 2, 5), []

    def calls():
        for place, limit in enumerate(limits):
            taken.append(place)
            text = [{"role": "user", "content": TEXTS[place]}]
            yield engine.check_chat(text, **{**OPTIONS, "max_tokens": limit})

    replies = engine.generate_many(calls(), streams=2)
    assert not taken
    place, result = next(replies)
    assert (place, len(result.token_ids), taken) == (1, 2, [0, 1])
    assert result.message.text
    assert {place for place, _ in replies} == {0, 2}


def fails_once(monkeypatch, method, turn):
    """Let a method of sessions raise in one call, when a pass has changed the caches before."""
    sound, calls = getattr(Session, method), []

    def failing(*arguments, **options):
        made = sound(*arguments, **options)
        calls.append(0)
        if len(calls) == turn:
            raise RuntimeError("out of memory")
        return made

    monkeypatch.setattr(Session, method, failing)


@pytest.mark.parametrize("streams", [1, 3])
def test_an_error_is_that_of_its_reply(engine, monkeypatch, streams):
    prompts = [TEXTS[0], "long " * 50, [1 << 20], TEXTS[0], TEXTS[2]]
    expected = [said(alone(engine, text)) for text in (TEXTS[0], TEXTS[0], TEXTS[2])]
    fails_once(monkeypatch, "commit", 4)
    found = dict(engine.generate_many(prompts, streams=streams, drafter="none", **OPTIONS))
    assert isinstance(found[1], ContextOverflowError)
    assert isinstance(found[2], ConfigError)
    replies = [found[0], found[3], found[4]]
    failed = [isinstance(one, RuntimeError) for one in replies]
    assert failed.count(True) == 1
    for reply, whole, is_error in zip(replies, expected, failed, strict=True):
        assert is_error or said(reply) == whole


def test_an_error_of_a_shared_pass_ends_its_replies_alone(monkeypatch):
    with toy_engine("llama", context=96) as engine:
        expected = said(alone(engine, TEXTS[0]))
        assert engine.joined_passes() is not None
        sound, calls = JoinedForward.__call__, []

        def failing(*arguments):
            calls.append(0)
            made = sound(*arguments)
            if len(calls) == 3:
                raise RuntimeError("out of memory")
            return made

        monkeypatch.setattr(JoinedForward, "__call__", failing)
        found = dict(engine.generate_many([TEXTS[0]] * 5, streams=2, **OPTIONS))
    failed = [place for place, one in found.items() if isinstance(one, RuntimeError)]
    assert len(failed) == 2
    assert {said(one) for place, one in found.items() if place not in failed} == {expected}


class TestEndsOfTheIterator:
    def begun(self, engine):
        limits = (1, 50, 50)
        ids = [engine.prompt_ids(text) for text in TEXTS]
        calls = [
            engine.check(prompt, **{**OPTIONS, "max_tokens": limit})
            for prompt, limit in zip(ids, limits, strict=False)
        ]
        replies = engine.generate_many(calls, streams=3)
        next(replies)
        return replies

    @pytest.fixture
    def closed(self, monkeypatch):
        """The sessions that were closed."""
        found, close = [], Session.close

        def closing(session):
            found.append(session)
            close(session)

        monkeypatch.setattr(Session, "close", closing)
        return found

    def test_closing_it_ends_the_rest(self, engine, closed):
        expected = said(alone(engine, TEXTS[1]))
        replies = self.begun(engine)
        replies.close()
        assert len(closed) == 3
        assert list(replies) == []
        assert said(alone(engine, TEXTS[1])) == expected

    @pytest.mark.filterwarnings("error")
    def test_closing_it_while_a_prompt_is_read(self, engine, monkeypatch):
        ended, measured = [], Session.measured

        @contextmanager
        def counted(session):
            with measured(session):
                try:
                    yield
                finally:
                    ended.append(session.vocabulary_size)

        monkeypatch.setattr(Session, "measured", counted)
        # With a pause behind each layer.
        set_turns(monkeypatch, seconds=0.0)
        replies = engine.generate_many([TEXTS[0], "long " * 50, TEXTS[1]], streams=2)
        place, error = next(replies)
        assert (place, type(error)) == (1, ContextOverflowError)
        replies.close()
        assert len(ended) == 1

    def test_dropping_it_ends_the_rest(self, engine, closed):
        self.begun(engine)
        assert len(closed) == 3

    @pytest.mark.parametrize("call", ["generate", "reset", "generate_many", "close"])
    def test_a_later_call_ends_it(self, engine, closed, call):
        replies = self.begun(engine)
        getattr(engine, call)(
            *[TEXTS[:1]] if call == "generate_many" else [],
            **{"generate": {"prompt": TEXTS[3], "max_tokens": 1}}.get(call, {}),
        )
        assert len(closed) >= 3
        with pytest.raises(EngineStateError, match=r"was (ended|closed)"):
            next(replies)

    def test_another_thread_cannot_end_it(self, engine, monkeypatch):
        set_waits(monkeypatch, unread=0.1)
        replies, errors = self.begun(engine), []

        def call():
            try:
                engine.generate(TEXTS[0])
            except EngineStateError as error:
                errors.append(str(error))

        thread = Thread(target=call)
        thread.start()
        thread.join()
        assert "another thread has begun a reply" in errors[0]
        assert len(list(replies)) == 2

    def test_an_error_of_the_prompts_ends_it(self, engine, closed):
        def prompts():
            yield TEXTS[0]
            raise LookupError

        replies = engine.generate_many(prompts(), streams=2)
        with pytest.raises(LookupError):
            next(replies)
        assert len(closed) == 1


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        (TEXTS, {"streams": 0}, "streams is 0; give 1 or more"),
        (TEXTS[0], {}, "prompts is one text; give a list of texts"),
        (TEXTS, {"temperatur": 1}, "did you mean temperature"),
        (TEXTS, {"max_tokens": 0}, "max_tokens is 0"),
    ],
)
def test_what_is_refused_at_once(prompts, options, message):
    with toy_engine() as engine, pytest.raises(ConfigError, match=message):
        engine.generate_many(prompts, **options)
