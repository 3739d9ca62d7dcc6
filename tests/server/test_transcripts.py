"""An agent's transcript of thirty turns: each turn prefills the new text and hardly more.

With an attention model, a sliding window and a recurrent hybrid. The replies are of random letters,
so that no tokenizer would cut their text as the model wrote it.
"""

import random

import pytest
from kept_worker import Worker
from toy_engine import END, PLAIN, TEXTS, ToyTokenizer, toy_engine
from turns import run

from akunu_py.server.backend import ChatRequest
from akunu_py.server.engine_backend import Chats
from akunu_py.server.events import Accepted
from akunu_py.server.prefix_cache import PrefixCache
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.messages import Message

FAMILIES = [
    "llama",
    pytest.param("llama, sliding", marks=pytest.mark.slow),
    pytest.param("qwen3_next", marks=pytest.mark.slow),
]
BLOCK = 8
TURNS = pytest.mark.parametrize("turns", [4, pytest.param(30, marks=pytest.mark.slow)])
SYSTEM = Message("system", "you are an agent. " * 8)
CLOSE = "z"  # ends thoughts, in the replies of these models


def text(rng, size):
    return "".join(rng.choice("abcdefg hijklm") for _ in range(size))


class Talk:
    """A client's conversation with a worker whose turns are made here."""

    def __init__(self, worker, *, seed=0, client="", shows_thoughts=True):
        self.worker = worker
        self.chats = Chats(worker)
        self.rng = random.Random(seed)
        self.seed = seed
        self.client = client
        self.shows_thoughts = shows_thoughts
        self.messages = [SYSTEM]
        self.before = 0  # tokens of the last prompt and its reply
        self.job = None

    def begin(self, thinks=False, **options):
        self.messages.append(Message("user", text(self.rng, self.rng.randrange(20, 60))))
        close = {TEXTS.index(CLOSE): 1.5} if thinks else {}
        self.options = {
            "max_tokens": 24, "seed": self.seed, "temperature": 1.0, "drafter": "none",
            "logit_bias": {**PLAIN, **close}, **options,
        }  # fmt: skip
        request = ChatRequest(
            model="", messages=tuple(self.messages), config=GenerationConfig(**self.options)
        )
        self.job = self.chats.ask(request, self.client)

    def end(self, thinks=False):
        """Return how many tokens were prefilled, and how many of the prompt are new."""
        started, *_, last = list(self.job.events)
        assert isinstance(started, Accepted)
        self.result = last.result
        reply = Message("assistant", self.result.text)
        if thinks:
            thought, _, said = self.result.text.partition(CLOSE)
            reply = Message("assistant", said, reasoning=thought)
        self.chats.remember(self.messages, reply, self.client)
        shown = reply if self.shows_thoughts else Message("assistant", reply.text)
        self.messages.append(shown)
        new = started.num_prompt_tokens - self.before
        self.before = started.num_prompt_tokens + len(self.result.token_ids)
        self.cached = started.num_cached_tokens
        return started.num_prompt_tokens - started.num_cached_tokens, new

    def turn(self, **options):
        self.begin(**options)
        run(self.worker)
        return self.end(thinks=options.get("thinks", False))


@pytest.fixture(params=FAMILIES)
def name(request):
    return request.param


@pytest.fixture
def make(name):
    """A worker over a model of each kind, with a tokenizer of one's choice."""
    made = []

    def worker(tokenizer=None, **options):
        engine = toy_engine(name, tokenizer=tokenizer, context=4000)
        made.append(Worker(engine, **{"cache": PrefixCache(1 << 28), **options}))
        return made[-1]

    yield worker
    for one in made:
        one.close()
        one.engine.close()


@TURNS
def test_each_turn_prefills_the_new_text(make, turns):
    worker = make()
    talk = Talk(worker)
    talk.turn()
    with toy_engine(worker.engine.description.name, context=4000) as cold:
        for number in range(1, turns):
            prefilled, new = talk.turn()
            assert prefilled <= new + BLOCK, number
            if number in (3, 19, 29):
                expected = cold.generate(talk.job.prompt, **talk.options)
                assert talk.result.token_ids == expected.token_ids
                cold.reset()
    # The text did come back in other ids: without them most would have been read again.
    assert turns < 30 or talk.job.prompt != tuple(worker.engine.chat_ids(talk.messages[:-1]))


@TURNS
def test_a_client_that_drops_thoughts_costs_nothing_more(make, turns):
    """The template shows earlier thoughts, the client does not send them."""
    talk = Talk(make(ToyTokenizer(opens=True, thought_end=CLOSE)), shows_thoughts=False)
    talk.turn(thinks=True)
    thoughts = 0
    for number in range(1, turns):
        thoughts += bool(talk.result.text.partition(CLOSE)[0])
        prefilled, new = talk.turn(thinks=True)
        assert prefilled <= new + BLOCK, number
    assert thoughts


@TURNS
def test_a_template_that_drops_thoughts_goes_back_to_the_last_message(make, turns):
    talk = Talk(make(ToyTokenizer(thoughts="drop", opens=True, thought_end=CLOSE)))
    talk.turn(thinks=True)
    for number in range(1, turns):
        place = len(talk.job.prompt) - 2  # before the two tokens that open thoughts
        talk.turn(thinks=True)
        assert talk.cached == place, number


@pytest.mark.slow
def test_conversations_share_the_system_message_and_keep_their_own(make):
    worker = make(parallel=2)
    talks = [Talk(worker, seed=seed, client=str(seed)) for seed in range(3)]
    lead = len(worker.engine.tokenizer.encode_chat([SYSTEM])) - 1
    talks[0].turn()
    for talk in talks[1:]:
        talk.begin()
    run(worker)
    for talk in talks[1:]:
        talk.end()
        assert talk.cached >= lead - 1
    for _ in range(2):
        for talk in talks:
            prefilled, new = talk.turn(max_tokens=12)
            assert prefilled <= new + BLOCK
    with toy_engine(worker.engine.description.name, context=4000) as cold:
        for talk in talks:
            cold.reset()
            expected = cold.generate(talk.job.prompt, **talk.options)
            assert talk.result.token_ids == expected.token_ids


@pytest.mark.slow
def test_a_prompt_copies_from_a_reply_under_way(make):
    worker = make(parallel=2)
    first, second = Talk(worker, seed=1), Talk(worker, seed=2)
    lead = len(worker.engine.tokenizer.encode_chat([SYSTEM])) - 1
    first.begin(max_tokens=60)
    while len(first.job.reply) < 20:
        worker.step()
    second.begin()
    run(worker)
    first.end()
    second.end()
    assert second.cached >= lead - 1
    with toy_engine(worker.engine.description.name, context=4000) as cold:
        for talk in (first, second):
            cold.reset()
            expected = cold.generate(talk.job.prompt, **talk.options)
            assert talk.result.token_ids == expected.token_ids


def test_the_end_of_a_reply_is_in_the_cache_too(make):
    worker = make()
    talk = Talk(worker)
    talk.begin(logit_bias={END: 100.0})
    run(worker)
    talk.end()
    prefilled, new = talk.turn()
    assert prefilled <= new + BLOCK


def test_the_last_token_of_a_reply_keeps_its_id_though_it_has_no_row(make):
    talk = Talk(make())
    # "aaaa" in four ids, which a tokenizer writes in two: the last has no row yet.
    talk.turn(max_tokens=4, logit_bias={TEXTS.index("a"): 100.0})
    assert talk.result.token_ids == (TEXTS.index("a"),) * 4
    prefilled, new = talk.turn()
    assert prefilled == new + 1
