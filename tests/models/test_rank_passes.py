"""What rank 0 announces makes another rank hold the same rows; both are in this process."""

import signal
from unittest.mock import Mock

import mlx.core as mx
import pytest
from family_models import build_family
from mlx.utils import tree_flatten
from pairwise import each_value
from tiny_models import ADVERSARIES, adversary, generate, prompt_of, sampler_of, tiny

from akunu_py.drafting.plain import PlainDrafter
from akunu_py.models import rank_split
from akunu_py.models.cached_rows import Passes
from akunu_py.models.passes.forward import forward_of
from akunu_py.models.passes.plan import PassRows
from akunu_py.models.rank_split import PlannedGroup
from akunu_py.models.ranks import passes
from akunu_py.models.ranks.passes import Follower, Leader
from akunu_py.models.session import Session
from akunu_py.values.types import GenerationConfig


class Kinds:
    """What `CacheKinds` finds where all ranks have caches of the same kinds."""

    def __init__(self, model):
        rollback = Passes(model, None).rollback
        self.supported, self.drops_rows = rollback.supported, rollback.drops_rows
        self.by_length, self.replays = rollback.by_length, forward_of(model).replays


class OpenFollower(Follower):
    """A follower with what tests hand over and read; ids come from `wire`."""

    def __init__(self, wire, model):
        super().__init__(wire, model)
        self._ids = lambda count: wire.ids[:count]

    def do(self, messages):
        for message in messages:
            self._do(message)

    def rows(self, number):
        return self._held[number]

    @property
    def sizes(self):
        """How many conversations and states are held."""
        return len(self._held), len(self._saved)


class OpenLeader(Leader):
    """A leader whose messages may be sent before the next pass."""

    def flush(self):
        waiting, self._waiting = self._waiting, []
        return waiting


class Wire:
    """Carries commands to a follower at once; ids are handed over beside them."""

    group = None

    def __init__(self, model):
        self.follower = OpenFollower(self, model)
        self.sent = []

    def send(self, messages):
        self.sent.append(list(messages))

    def fail_by(self, error):
        raise SystemExit(f"all ranks end: {error}")

    def deliver(self):
        while self.sent:
            self.follower.do(self.sent.pop(0))


@pytest.fixture
def ranks(monkeypatch):
    def start(model, **options):
        wire = Wire(model)
        wire.leader = leader = OpenLeader(wire, Kinds(model))

        def announce(message, rows):
            ids = Leader.announce(leader, message, rows)
            wire.ids = ids
            wire.deliver()
            return ids

        leader.announce = announce
        return Session(model, context=200, make_passes=leader.passes, **options), wire

    monkeypatch.setattr(passes.mx.distributed, "all_sum", lambda array, **_group: array)
    return start


def held(passes_held):
    """All arrays of caches, as far as they are rows, and what else tells two caches apart."""
    return [
        (path, array)
        for cache in passes_held.caches
        for path, array in tree_flatten(cache.state)
        if isinstance(array, mx.array)
    ]


def same_rows(session, wire):
    """The rows of rank 0's conversation, and whether the follower has them too."""
    number = session.rows.rollback._number
    ours, theirs = held(session.rows), held(wire.follower.rows(number))
    return len(ours) == len(theirs) and all(
        path == other and mx.array_equal(array, same)
        for (path, array), (other, same) in zip(ours, theirs, strict=True)
    )


def flush(wire):
    """Send what waits for the next pass."""
    wire.follower.do(wire.leader.flush())


@pytest.mark.fast_every(3)
@pytest.mark.parametrize(
    ("family", "kind"),
    each_value(["llama", "qwen3_next", "llama, sliding", "qwen3_moe"], ["half", "random"]),
)
def test_a_follower_holds_the_rows_of_rank_0(ranks, family, kind):
    model = build_family(family)
    session, wire = ranks(model)
    alone = Session(model, context=200)
    # A follower knows no pass over the rows of several sessions.
    assert alone.joins
    assert not session.joins
    prompt = prompt_of(24)
    truth = generate(alone, prompt, GenerationConfig(), PlainDrafter(), max_tokens=30)
    drafter = adversary(kind, [*prompt, *truth], seed=2)
    assert generate(session, prompt, GenerationConfig(), drafter, max_tokens=30) == truth
    # All ranks copy the rows, and feed the copies.
    assert session.bit_equal_to(9) == alone.bit_equal_to(9)
    flush(wire)
    assert same_rows(session, wire)


@pytest.mark.parametrize("reproducible", [False, True])
def test_a_prompt_that_shares_its_beginning_is_followed(ranks, reproducible):
    session, wire = ranks(tiny(), reproducible=reproducible)
    for seed in (0, 1, 0):
        prompt = [*prompt_of(20), *prompt_of(15, seed=seed)]
        generate(session, prompt, GenerationConfig(), PlainDrafter(), max_tokens=8)
        flush(wire)
        assert same_rows(session, wire)


def test_rows_that_are_dropped_are_forgotten_by_all(ranks):
    session, wire = ranks(build_family("qwen3_next"))
    for seed in range(3):
        drafter = adversary("random", [0] * 200, seed)
        generate(session, prompt_of(20, seed), GenerationConfig(), drafter, max_tokens=20)
    session.reset()
    generate(session, prompt_of(20), GenerationConfig(), PlainDrafter(), max_tokens=5)
    conversations, saved = wire.follower.sizes
    assert conversations <= 2
    assert saved <= 4


@pytest.mark.parametrize("kind", ADVERSARIES)
def test_sampled_text_is_the_same(ranks, kind):
    model = tiny()
    config = GenerationConfig(temperature=0.9)
    prompt = prompt_of(24)
    plain = generate(Session(model, context=200), prompt, config, PlainDrafter(), max_tokens=30)
    session, _ = ranks(model)
    drafter = adversary(kind, [*prompt, *plain], seed=4)
    assert generate(session, prompt, config, drafter, max_tokens=30) == plain


def test_one_message_a_pass(ranks):
    session, wire = ranks(tiny())
    sent = []
    wire.send = lambda messages: sent.append(list(messages)) or wire.sent.append(messages)
    drafter = adversary("random", [], 1)
    generate(session, prompt_of(20), GenerationConfig(), drafter, max_tokens=20)
    passes_run = [
        message for messages in sent for message in messages if "FEED" in message.kind.name
    ]
    assert len(sent) == len(passes_run)


def another(session, wire):
    """A further conversation over the same model, on all ranks."""
    return Session(session.rows.model, context=200, make_passes=wire.leader.passes)


def read(session, prompt, **checkpoints):
    for _ in session.beginning(prompt, sampler_of(), 1, checkpoints):
        pass


@pytest.mark.fast_every(3)
@pytest.mark.parametrize("family", ["llama", "qwen3_next", "llama, sliding", "llama, 8-bit caches"])
@pytest.mark.parametrize("length", [39, 25])
def test_a_copy_is_made_by_all_ranks(ranks, family, length):
    """Of a beginning, or as much of it as caches without `by_length` can go back to."""
    model = build_family(family)
    session, wire = ranks(model)
    other, alone = another(session, wire), Session(model, context=200)
    prompt = prompt_of(40)
    read(session, prompt, system=20)
    other.exchange(session.copy(session.rows, length))
    for number, one in enumerate((session, other)):
        further = [*prompt[: length + 1], *prompt_of(10, seed=number)]
        plain = generate(alone, further, GenerationConfig(), PlainDrafter(), max_tokens=8)
        drafter = adversary("half", [*further, *plain], seed=number)
        assert generate(one, further, GenerationConfig(), drafter, max_tokens=8) == plain
    flush(wire)
    assert same_rows(session, wire)
    assert same_rows(other, wire)


def test_a_copy_goes_back_to_a_mark_when_its_original_has_gone(ranks):
    session, wire = ranks(build_family("qwen3_next"))
    other = another(session, wire)
    prompt = prompt_of(40)
    read(session, prompt, system=20)
    other.exchange(session.copy(session.rows, 39))
    session.reset()
    read(session, prompt_of(5, seed=1))
    further = [*prompt[:30], *prompt_of(10, seed=2)]
    read(other, further)
    assert other.rows.tokens == further[:-1]
    assert other.rows.marks == {"system": 20, "prompt": 39}
    flush(wire)
    assert same_rows(other, wire)


def test_copies_that_are_dropped_are_forgotten_by_all(ranks):
    session, wire = ranks(build_family("qwen3_next"))
    other = another(session, wire)
    read(session, prompt_of(40), system=20)
    for _ in range(5):
        other.exchange(session.copy(session.rows, 39))
    other.exchange(None)
    read(session, prompt_of(40, seed=1))
    flush(wire)
    # Those of the first probes may still be on their way.
    assert max(wire.follower.sizes) <= 4


def test_all_conversations_share_a_stream(ranks, monkeypatch):
    """Collectives in streams of their own would overtake each other on rank 0."""
    session, wire = ranks(tiny())
    streams = set()

    def sum_up(array, **_group):
        streams.add(str(mx.default_stream(mx.default_device())))
        return array

    monkeypatch.setattr(passes.mx.distributed, "all_sum", sum_up)
    for one in (session, another(session, wire)):
        generate(one, prompt_of(20), GenerationConfig(), PlainDrafter(), max_tokens=3)
    assert len(streams) == 1


def collectives(model, group, rows, monkeypatch):
    """(number, bytes) of what one rank gives to MLX's collectives in a pass over `rows`."""
    rank_split.prepare(model, group, "the model").apply(model)
    given = []

    def count(array, *_args, **_group):
        given.append(array.nbytes)
        return array

    for name in ("all_sum", "all_gather", "send"):
        monkeypatch.setattr(mx.distributed, name, count)
    monkeypatch.setattr(mx.distributed, "recv_like", lambda array, *_args, **_group: array)
    monkeypatch.setattr("mlx.nn.layers.distributed.sum_gradients", lambda _group: lambda x: x)
    passes_of_rank = Passes(model, None)
    ids = passes._shared_ids(Wire(model), mx.zeros(rows, dtype=mx.int32))
    mx.eval(passes_of_rank.run(PassRows(ids, passes_of_rank.caches)))
    return len(given), sum(given)


@pytest.mark.parametrize("rows", [1, 2, 8, 16])
def test_messages_do_not_grow_with_rows(monkeypatch, rows):
    """The figures of docs/several-machines.md: float32, 64 wide, two layers, four of qwen3_next."""
    number, size = collectives(tiny(), PlannedGroup(0, 2), rows, monkeypatch)
    # The ids, and two sums for each layer.
    assert (number, size) == (1 + 2 * 2, rows * (4 + 2 * 2 * 64 * 4))
    first = collectives(build_family("qwen3_next"), PlannedGroup(1, 2), rows, monkeypatch)
    # The ids, the rows for the next rank, and the result for all.
    assert first == (3, rows * (4 + 2 * 64 * 4))


def test_a_pass_that_fails_on_rank_0_alone_ends_all(ranks):
    session, _ = ranks(tiny())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Passes, "run", Mock(side_effect=RuntimeError("out of memory")))
        with pytest.raises(SystemExit, match="all ranks end: out of memory"):
            session.logits([1, 2, 3])


def test_ctrl_c_comes_after_a_pass(ranks):
    session, wire = ranks(tiny())
    plain = Passes.run

    def interrupted(*args):
        signal.raise_signal(signal.SIGINT)
        return plain(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Passes, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            generate(session, prompt_of(20), GenerationConfig(), PlainDrafter(), max_tokens=5)
    generate(session, prompt_of(20), GenerationConfig(), PlainDrafter(), max_tokens=5)
    flush(wire)
    assert same_rows(session, wire)
