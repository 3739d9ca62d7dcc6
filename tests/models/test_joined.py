"""Passes over the rows of several sessions: each session gets what a pass of its own gives."""

import contextlib
import io
from functools import partial
from itertools import chain, repeat

import mlx.core as mx
import pytest
from family_models import NAMES, build_family, variant_of
from mlx import nn
from mlx.utils import tree_flatten
from tiny_architectures.builder import build
from tiny_models import begin, prompt_of

from akunu_py import Engine
from akunu_py.cpu.blas import load_blas
from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.joined import JoinedForward, WantedChoice, choose_together
from akunu_py.models.passes.plan import PassRows
from akunu_py.models.passes.trials import HALF_TOLERANCE, TOLERANCE, distance
from akunu_py.models.rollback.caches import leaves
from akunu_py.models.row_choices import PendingChoices, RowChoices
from akunu_py.models.session import Session
from akunu_py.values.types import Draft, GenerationConfig

REFUSED = {
    # They compute with the position of the first row, or select rows by it, in the model itself.
    "llama4", "deepseek_v41",
}  # fmt: skip

ROUNDS = ((5, 1, 9), (1, 1, 1), (3, 1, 2), (1, 4, 1), (6, 2, 3), (1, 1, 1))
"""Rows of three sessions, pass by pass; the windows of the families end in between."""


def rows_of(model, name):
    return CachedRows(model, variant_of(name).kv_bits)


def session_of(model, name):
    return Session(model, context=64, kv_bits=variant_of(name).kv_bits)


def paths_of(model):
    return [path for path, _ in tree_flatten(model.parameters())]


def size_of(model, name):
    return int(rows_of(model, name).feed(mx.array([1])).shape[-1])


def run(joined, rows, caches):
    """Logits of rows of several sessions, from one pass."""
    return joined([PassRows(*of) for of in zip(rows, caches, strict=True)])


def tokens(count, place, number, size):
    return mx.array([(1 + 31 * number + 7 * place + 3 * row) % size for row in range(count)])


def same(found, expected):
    if load_blas().name == "MLX's own":
        return bool(mx.array_equal(found, expected))
    return distance(found, expected) < TOLERANCE


@pytest.mark.fast_every(4)
@pytest.mark.parametrize("name", NAMES)
def test_each_session_gets_what_it_gets_alone(name, monkeypatch):
    model = build_family(name)
    size = size_of(model, name)
    joined = JoinedForward(model)
    refusal = joined.refusal(session_of(model, name))
    assert bool(refusal) == (name in REFUSED), refusal
    parameters = paths_of(model)
    if refusal:
        # The model is as it was.
        alone = rows_of(model, name).feed(tokens(3, 0, 0, size))
        assert bool(mx.all(mx.isfinite(alone)))
        return
    together, alone = ([rows_of(model, name) for _ in range(3)] for _ in range(2))
    # Each keeps a part of its own rows; none are fed again.
    monkeypatch.delattr(CachedRows, "feed_apart")
    for number, counts in enumerate(ROUNDS):
        fed = [tokens(count, place, number, size) for place, count in enumerate(counts)]
        # The second session joins late, and the first leaves for a pass.
        here = [0, 2] if number == 0 else [1, 2] if number == 3 else [0, 1, 2]
        found = joined([together[place].planned(fed[place]) for place in here])
        for place, logits in zip(here, found, strict=True):
            expected = alone[place].passes.run(alone[place].planned(fed[place]))
            assert same(logits, expected), (number, place)
            kept = counts[place] - (number in {2, 4} and counts[place] > 1)
            for rows in (together[place], alone[place]):
                rows.keep(fed[place].tolist(), range(kept))
    assert paths_of(model) == parameters


@pytest.mark.parametrize("name", ["phi2", "stablelm"])
def test_replies_of_models_that_attend_in_another_type(tmp_path, name):
    texts = ("a cat and a dog", "one, two, three; one, two, ", "z")
    options = {"max_tokens": 16, "drafter": "ngram", "draft_budget": "always"}
    path = build(name).write(tmp_path / "model.gguf")
    with Engine.load(path, compute_type="bfloat16") as engine:
        assert engine.joined_passes() is not None
        alone = [engine.generate(text, **options).token_ids for text in texts]
        found = dict(engine.generate_many(texts, streams=3, **options))
        assert [found[place].token_ids for place in range(3)] == alone


@pytest.mark.parametrize("name", ["qwen3", "gemma3", "qwen3_next", "deepseek_v3"])
def test_one_sessions_cache_is_its_own_affair(name):
    """Not-a-numbers in one session's cache reach no other session; tokens may be not known yet."""
    model = build_family(name)
    size = size_of(model, name)
    joined = JoinedForward(model)
    assert not joined.refusal(session_of(model, name))
    broken, sound, alone = (rows_of(model, name) for _ in range(3))
    run(joined, [tokens(4, 0, 0, size), tokens(6, 1, 0, size)], [broken.caches, sound.caches])
    alone.feed(tokens(6, 1, 0, size))
    for leaf in leaves(broken.caches):
        for key, value in vars(leaf).items():
            if isinstance(value, mx.array) and mx.issubdtype(value.dtype, mx.floating):
                setattr(leaf, key, value * mx.nan)
            elif isinstance(value, list):
                value[:] = [None if one is None else one * mx.nan for one in value]
    # A token as a pass before makes it, which the host has not read.
    later = tokens(1, 1, 1, size) + mx.array(0)
    lost, found = run(joined, [tokens(2, 0, 1, size), later], [broken.caches, sound.caches])
    assert bool(mx.all(mx.isnan(lost)))
    assert same(found, alone.feed(tokens(1, 1, 1, size)))


@pytest.mark.parametrize(
    ("kind", "apart", "refused"),
    [
        (mx.float32, 0.5 * TOLERANCE, False),
        (mx.float32, 2 * TOLERANCE, True),
        (mx.bfloat16, 2 * TOLERANCE, False),
        (mx.bfloat16, 2 * HALF_TOLERANCE, True),
        (mx.bfloat16, float("nan"), True),
    ],
)
def test_logits_that_differ_are_refused(monkeypatch, kind, apart, refused):
    model = build_family("llama")
    model.set_dtype(kind)
    # A number comes first, behind which a NaN could be lost.
    distances = chain([0.0], repeat(apart))
    monkeypatch.setattr("akunu_py.models.passes.trials.distance", lambda *_: next(distances))
    said = JoinedForward(model).refusal(session_of(model, "llama"))
    assert said == f"logits of joined passes differ by {apart:.1e} of the largest" * refused


@pytest.mark.parametrize(
    "name",
    ["llama", "gemma3", "llama, 8-bit caches", "mixtral", "gemma2", "deepseek_v3", "gpt_oss",
     "qwen3_next"],
)  # fmt: skip
def test_attention_runs_once_for_all_sessions(monkeypatch, name):
    model = build_family(name)
    together = [rows_of(model, name) for _ in range(3)]
    joined = JoinedForward(model)
    assert not joined.refusal(session_of(model, name))
    attention = type(next(layer for layer in model.layers if "self_attn" in layer).self_attn)
    calls, sound = [], attention.__call__
    monkeypatch.setattr(
        attention, "__call__", lambda *of, **named: calls.append(0) or sound(*of, **named)
    )
    run(joined, [tokens(n, n, 0, 30) for n in (3, 1, 2)], [session.caches for session in together])
    layers = sum("self_attn" in layer for layer in model.layers)
    assert len(calls) == layers


def run_counting(monkeypatch, run):
    """What `run` returns, and how often linear layers compute anything in it."""
    calls, sound = [], nn.Linear.__call__
    with monkeypatch.context() as patch:
        patch.setattr(nn.Linear, "__call__", lambda *of: calls.append(0) or sound(*of))
        return run(), len(calls)


class Sum(nn.Module):
    """Attention that uses keys past mlx-lm's function."""

    def __call__(self, x, mask=None, cache=None):
        keys, _ = cache.update_and_fetch(x[:, None], x[:, None])
        return x + keys.sum(axis=2)


def test_a_class_that_uses_keys_in_an_unknown_way_is_refused():
    model = build_family("llama")
    model.model.layers[1].self_attn = Sum()
    assert JoinedForward(model).refusal(session_of(model, "llama"))


@pytest.mark.parametrize(
    "name", ["llama", "gemma2", "deepseek_v3", "deepseek_v32", "minimax_m3", "plamo2", "qwen3_next"]
)
def test_weights_are_read_once_for_all_sessions(monkeypatch, name):
    model = build_family(name)
    joined = JoinedForward(model)
    together, alone = ([CachedRows(model) for _ in range(3)] for _ in range(2))
    for rows, length in zip(together + alone, (40, 3, 25) * 2, strict=True):
        # Longer than what layers choose of it.
        rows.prefill(prompt_of(length))
    for number in range(3):
        fed = [tokens(1 + place, place, number, 30) for place in range(3)]
        caches = [session.caches for session in together]
        found, calls = run_counting(monkeypatch, partial(run, joined, fed, caches))
        feeds = [partial(rows.feed, own) for rows, own in zip(alone, fed, strict=True)]
        expected, counts = zip(*(run_counting(monkeypatch, feed) for feed in feeds), strict=True)
        assert all(map(same, found, expected))
        # Behind a longer text some layers have more to choose.
        assert calls == max(counts)


@pytest.mark.parametrize("name", ["deepseek_v32", "minimax_m3"])
def test_keys_that_only_choose_are_computed_with_the_pass(name):
    """Otherwise what makes them is held from pass to pass, since nothing else may ask for them."""
    model = build_family(name)
    together = [rows_of(model, name) for _ in range(2)]
    run(JoinedForward(model), [mx.array([1]), mx.array([2])], [rows.caches for rows in together])
    for rows in together:
        graph = io.StringIO()
        mx.export_to_dot(graph, rows.caches[1][0].keys)
        assert "Depends" in graph.getvalue()


class Scripted:
    """A session that asks for passes and waits as its script says."""

    stream = mx.default_stream(mx.default_device())

    def __init__(self, name, script, log):
        self.name, self.script, self.log = name, script, log

    def choosing(self, last, draft):
        for step in self.script:
            if isinstance(step, BaseException):
                raise step
            sent = yield step
            self.log.append(f"{self.name} {'reads' if step is None else 'feeds'}")
            assert (sent is None) == (step is None)
        return [last]

    def feed(self, rows):
        return rows.tokens

    def building(self, rows):
        return contextlib.nullcontext()

    largest_pass = 0


def wanted_by(log, scripts):
    return [
        WantedChoice(Scripted(name, script, log), place, Draft.empty())
        for place, (name, script) in enumerate(scripts.items())
    ]


def chosen(log, **scripts):
    return choose_together(None, wanted_by(log, scripts))


ROWS = PassRows(mx.array([1]), ())


def test_the_host_waits_when_all_is_queued():
    log = []
    assert chosen(log, a=[ROWS, None], b=[ROWS, ROWS, None], c=[None], d=[]) == [[0], [1], [2], [3]]
    assert log == ["a feeds", "b feeds", "b feeds", *log[3:]]
    assert sorted(log[3:]) == ["a reads", "b reads", "c reads"]


def test_a_second_pass_comes_with_the_next_one_of_all():
    """Behind a draft nothing is in flight. Rows of their own would read all weights again."""
    log, sizes = [], []

    def forward(parts):
        sizes.append([one.tokens.size for one in parts])
        return [one.tokens for one in parts]

    behind, *others = wanted_by(log, {"a": [ROWS, ROWS, None], "b": [ROWS, None], "c": [None]})
    assert choose_together(forward, [behind, *others]) == [None, [1], [2]]
    assert log == ["a feeds", "b feeds", "c reads", "b reads"]
    others = wanted_by(log, {"d": [PassRows(mx.array([1, 2]), ()), None], "e": [ROWS, ROWS, None]})
    assert choose_together(forward, [behind, *others]) == [[0], [0], None]
    # The last one is alone by then: its rows need no others.
    assert choose_together(None, others[1:]) == [[1]]
    assert sizes == [[1, 1], [1, 2, 1]]


def test_an_error_of_a_choice_is_its_own():
    lost, later = ValueError("lost"), ValueError("later")
    assert chosen([], a=[lost], b=[ROWS, None], c=[ROWS, None, later]) == [lost, [1], later]
    for end in (KeyboardInterrupt(), SystemExit()):
        with pytest.raises(type(end)):
            chosen([], a=[ROWS, None], b=[ROWS, end])


@pytest.mark.parametrize(
    ("config", "draft", "queued"),
    [
        # The choice, and behind it the one of the step in flight.
        (GenerationConfig(), (), 2),
        (GenerationConfig(), (1, 2), 1),
        (GenerationConfig(repetition_penalty=1.2), (), 1),
    ],
)
def test_choices_are_queued_before_one_is_read(monkeypatch, config, draft, queued):
    model, log = build_family("llama"), []
    for owner, name in (
        (PendingChoices, "queue"), (RowChoices, "read"),
    ):  # fmt: skip
        sound = getattr(owner, name)

        def logged(*of, sound=sound, name=name):
            log.append(name)
            return sound(*of)

        monkeypatch.setattr(owner, name, logged)
    sessions = [Session(model, context=64) for _ in range(3)]
    for session in sessions:
        begin(session, [1, 2, 3], config, 20)
    streams, forward = [], JoinedForward(model)

    def joined(*of):
        streams.append(mx.default_stream(mx.default_device()))
        return forward(*of)

    wanted = [WantedChoice(session, 3, Draft.chain(draft, "x")) for session in sessions]
    while None in choose_together(joined, wanted):
        pass
    assert log == ["queue"] * 3 * queued + [log[-1]] * 3
    assert log[-1].startswith("read")
    assert len(streams) == queued
    with mx.stream(sessions[0].stream):
        assert set(map(str, streams)) == {str(mx.default_stream(mx.default_device()))}
    # The pass of all, whatever a later one has.
    rows = 3 * (1 + len(draft))
    assert [session.largest_pass for session in sessions] == [rows] * 3
    for session in sessions:
        session.commit([])
    wanted = [WantedChoice(session, 4, Draft.empty()) for session in sessions[:2]]
    while None in choose_together(joined, wanted):
        pass
    assert [session.largest_pass for session in sessions] == [rows] * 3


def test_a_tree_shares_a_pass_with_others():
    model = build_family("llama")
    together, alone = ([Session(model, context=64) for _ in range(2)] for _ in range(2))
    drafts = [Draft((5, 6, 7, 8), (-1, -1, 0, 1), "x"), Draft.chain((4, 2), "x")]
    for session in (*together, *alone):
        begin(session, [1, 2, 3], max_tokens=20)
        assert session.takes_tree(drafts[0])
    sizes, forward = [], JoinedForward(model)

    def joined(parts):
        sizes.append([part.tokens.size for part in parts])
        return forward(parts)

    wanted = [WantedChoice(*of) for of in zip(together, (3, 3), drafts, strict=True)]
    found = choose_together(joined, wanted)
    assert sizes == [[5, 3]]
    assert found == [session.choose(3, draft) for session, draft in zip(alone, drafts, strict=True)]
    for session in (*together, *alone):
        session.commit([])
    wanted = [WantedChoice(session, 9, Draft.empty()) for session in together]
    # A step, and the one in flight behind it.
    assert choose_together(joined, wanted) == [None, None]
    found = choose_together(joined, wanted)
    assert found == [session.choose(9, Draft.empty()) for session in alone]
