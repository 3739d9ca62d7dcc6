"""The parts of `akunu bench machine`, measured with small models."""

import itertools
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from machine_reports import MODEL
from msgspec.structs import replace as replace_fields

from akunu_lab.machine import loading, planning, prefill, replies, rows, speed, start
from akunu_lab.machine.costs import SizeCost, measure_costs
from akunu_lab.machine.loading import measure_load, measure_memory
from akunu_lab.machine.planning import (
    CannotBeMeasuredError,
    ModelPace,
    PartRun,
    Subject,
    interleaved,
)
from akunu_lab.machine.prefill import measure_prefill
from akunu_lab.machine.replies import measure_replies
from akunu_lab.machine.rows import measure_rows
from akunu_lab.machine.speed import measure_speed
from akunu_lab.machine.start import NoFirstTokenError, first_token_s, measure_start
from akunu_py.api import ArmFigures, ConfigError, Engine, Prompt
from akunu_py.values.cost_curve import CostCurve

SLOW = ModelPace(step_s=0.3, prefill_s_per_token=0.01, prompt_tokens=100)
FAST = ModelPace(step_s=0.01, prefill_s_per_token=0.0005, prompt_tokens=200)


@pytest.fixture(scope="module")
def loaded(tiny_gguf):
    """A model with a context of 256 tokens, for all tests."""
    subject = Subject(tiny_gguf, facts=replace(MODEL, drafting=True))
    assert measure_load(subject, PartRun(1.0)).seconds > 0
    assert subject.pace.step_s > 0
    yield subject
    subject.engine.close()


@pytest.fixture
def short(loaded):
    return replace(loaded, pace=SLOW)


@pytest.fixture
def brief(short, monkeypatch):
    """The same with prompts that fit into its context."""
    prompts = [
        Prompt(f"{category}/{number}", category, "raw", f"{number} def f(x): return x")
        for number in range(8)
        for category in speed.CATEGORIES
    ]
    for part in (replies, speed):
        monkeypatch.setattr(part, "interleaved", lambda _categories=None: prompts)
    return replace(short, has_costs=True)


def counting(most):
    """A run that is over when it was asked `most` times."""

    class Counting(PartRun):
        asked = 0

        def is_over(self):
            Counting.asked += 1
            return Counting.asked > most

    return Counting(0.001)


def stopped(number):
    """A run that is interrupted when it tells for the so-many-th time."""
    told = itertools.count(1)

    def tell():
        if next(told) == number:
            raise KeyboardInterrupt

    return PartRun(1e9, tell)


@pytest.mark.slow
def test_the_memory_it_needs_and_what_it_is(default_model):
    subject = Subject(default_model)
    found = measure_memory(subject, PartRun(1.0))
    facts = subject.facts
    assert (facts.name, facts.architecture, facts.stored_as) == (
        "akunu-tiny", "llama", "GGUF, Q8_0",
    )  # fmt: skip
    assert facts.drafting
    assert found.tokens == facts.context == 2048
    assert found.weights_bytes > facts.file_bytes
    assert found.limit_bytes > 10**8


def test_a_model_in_several_types(monkeypatch):
    """The one with most bytes gives the name; a folder may have none."""
    types = [("Q4_K", 5), ("Q6_K", 8), ("Q4_K", 4)]
    said = {
        "name": "m", "kind": "GGUF", "architecture": "qwen3", "parameters": 1, "file_bytes": 1,
        "weights": "dense", "context_length": 64, "drafting": False, "weights_bytes": 1,
        "memory_limit": 9, "memory": [{"context": 64, "kv_bytes": 2, "pass_bytes": 3}],
        "quantization": [{"type": name, "bytes": size} for name, size in types],
    }  # fmt: skip
    monkeypatch.setattr(loading, "ask", lambda *_arguments: said)
    subject = Subject(Path("m"))
    assert measure_memory(subject, PartRun(1.0)).together_bytes == 6
    assert subject.facts.stored_as == "GGUF, Q4_K"
    said["quantization"] = []
    measure_memory(subject, PartRun(1.0))
    assert subject.facts.stored_as == "GGUF"


def test_a_file_that_is_no_model(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ConfigError, match=r"m\.gguf"):
        measure_memory(Subject(path), PartRun(1.0))


def test_replies_are_as_long_as_the_time_lets_them_be():
    assert (FAST.compared_tokens(1000.0), FAST.timed_tokens(1000.0)) == (64, 96)
    assert (SLOW.compared_tokens(10.0), SLOW.timed_tokens(10.0)) == (16, 16)
    # 20 s a reply, of which 1 s is for the prompt.
    assert SLOW.compared_tokens(20.0 * 30) == int(19 / (1.3 * 0.3))


@pytest.mark.parametrize(
    ("seconds", "step_s", "rounds"),
    [(60.0, 0.01, 9), (60.0, 0.2, 5), (20.0, 0.2, 1), (50.0, 0.6, 1), (30.0, 0.2, 5), (1e-9, 1.0, 1)],
)  # fmt: skip
def test_rounds_that_fit(seconds, step_s, rounds):
    """Five, for an interval, where that takes twice the time at most."""
    assert replace(FAST, step_s=step_s).rounds(seconds) == rounds


def test_any_beginning_of_the_prompts_has_all_categories():
    prompts = interleaved()
    assert sorted(prompt.id for prompt in prompts) == sorted(one.id for one in Prompt.load())
    sessions = [key for key, _ in itertools.groupby(prompts, key=lambda item: item.session)]
    assert len(sessions) == len(set(sessions)), "turns of a session follow each other"
    categories = [key for key, _ in itertools.groupby(prompt.category for prompt in prompts)]
    assert len(set(categories[:7])) == 7
    edits = [len(prompt.last_user_text) for prompt in prompts if prompt.category == "edit"]
    assert edits == sorted(edits)


def test_rows(short):
    run = PartRun(1000.0)
    found = measure_rows(short, run)
    assert found.equal
    assert (found.by_size[-1].rows, found.context) == (33, 128)
    assert {one.different for one in found.by_size} == {0}
    assert run.note == ""
    slow = PartRun(0.0)
    found = measure_rows(short, slow)
    assert (found.by_size[-1].rows, found.context) == (9, 0)
    assert "more than 9 rows were left out" in slow.note


@pytest.mark.parametrize("behind", [0, 128])
def test_rows_as_a_gpu_may_compute_them(short, monkeypatch, behind):
    """Passes of several rows differ, behind a long text alone or everywhere."""
    real = rows._probabilities

    def rounded(engine, place, sizes):
        found = real(engine, place, sizes)
        return found + 1e-9 * (max(sizes) > 4 and place >= behind)

    monkeypatch.setattr(rows, "_probabilities", rounded)
    found = measure_rows(short, PartRun(1000.0))
    assert not found.equal
    assert [one.rows for one in found.by_size if one.different] == (
        [] if behind else [5, 6, 8, 9, 10, 11, 13, 16, 17, 25, 33]
    )


def test_a_model_that_cannot_go_back(short):
    subject = replace(short, facts=replace(short.facts, drafting=False))
    with pytest.raises(CannotBeMeasuredError, match="cannot go back"):
        measure_replies(subject, PartRun(1.0))


def test_prefill_and_its_memory(short, monkeypatch):
    monkeypatch.setattr(prefill, "TEXT_LENGTHS", (16, 64, 256))
    run = PartRun(1000.0)
    found = measure_prefill(short, run)
    assert [length.tokens for length in found.lengths] == [16, 64]
    for length in found.lengths:
        assert len(length.seconds) == 3
        # Other tests' models are in the memory of this process, too.
        assert length.peak_bytes > 0
        assert length.foreseen_bytes > 0
    assert found.lengths[1].foreseen_bytes > found.lengths[0].foreseen_bytes
    assert run.note == "prompts of 256 tokens do not fit into the context"


def test_prefill_on_a_slow_machine(short, monkeypatch):
    monkeypatch.setattr(prefill, "TEXT_LENGTHS", (16, 64))
    run = PartRun(0.0)
    (length,) = measure_prefill(short, run).lengths
    assert (length.tokens, len(length.seconds)) == (16, 1)
    assert run.note == "there was no time for prompts of 64 tokens"


def test_prefill_in_a_context_that_is_too_short(short, monkeypatch):
    monkeypatch.setattr(prefill, "TEXT_LENGTHS", (256,))
    with pytest.raises(CannotBeMeasuredError, match="256 tokens do not fit into the context"):
        measure_prefill(short, PartRun(1.0))


@pytest.mark.slow
def test_costs(loaded):
    subject = replace(loaded, pace=ModelPace(1e-5, 1e-5, 10))
    found = measure_costs(subject, PartRun(1.0))
    assert (found.rounds, found.context_tokens) == (9, 128)
    assert [one.rows for one in found.sizes][:3] == [1, 2, 3]
    assert all(one.low <= one.cost <= one.high for one in found.sizes)
    assert found.step_bytes > 0
    assert subject.has_costs


def test_costs_of_a_slow_machine_have_no_ratio(short):
    run = PartRun(0.0)
    found = measure_costs(short, run)
    assert found.rounds == 1
    assert {(one.cost, one.pays_from, one.pays_from_low) for one in found.sizes} == {(None,) * 3}
    assert found.lacks_ratios()
    assert "no time for 5 rounds" in run.note


def test_a_context_that_is_too_short_for_passes(tiny_gguf):
    engine = Engine.load(tiny_gguf, context=64)
    subject = Subject(tiny_gguf, engine=engine, pace=SLOW)
    with engine, pytest.raises(CannotBeMeasuredError, match="do not fit into the context"):
        measure_costs(subject, PartRun(1.0))


def test_the_interval_of_a_cost():
    """Other work slows some rounds, plain steps and passes alike: their ratio stays."""
    slow = (1.0, 1.0, 3.0, 1.0, 3.0, 1.0)
    plain = tuple(0.01 * factor for factor in slow for _ in range(2))
    found = SizeCost.of(5, [0.02 * factor for factor in slow], plain)
    assert (found.cost, found.pass_s) == (2.0, 0.02)
    assert found.low <= 2.0 <= found.high
    assert found.pays_from == CostCurve.least_confidence(2.0, 4)
    assert SizeCost.of(5, [0.02] * 4, plain[:8]).cost is None


@pytest.mark.parametrize(
    ("cost", "size", "least"), [(1.5, 1, 0.5), (1.75, 2, 0.5), (2.0, 1, None), (1.0, 0, None)]
)
def test_from_when_drafts_pay(cost, size, least):
    assert CostCurve.least_confidence(cost, size) == (least and pytest.approx(least))


@pytest.mark.parametrize(("temperature", "reproducible"), [(0.0, False), (0.8, False), (0.0, True)])
def test_replies_with_and_without_drafting(brief, temperature, reproducible):
    run = counting(1)
    if reproducible:
        # It takes the place of the engine, which other tests need.
        brief = replace(brief, engine=Engine.load(brief.path))
    found = measure_replies(brief, run, temperature=temperature, reproducible=reproducible)
    assert brief.engine.reproducible == reproducible
    assert (found.temperature, found.reproducible) == (temperature, reproducible)
    assert (found.prompts, found.identical, found.differences) == (2, 2, ())
    assert (found.shipped, found.left_out, found.max_tokens) == (16, 0, 16)
    assert 0 <= found.accepted <= found.drafted
    assert run.note == "replies of 16 tokens instead of 64"


def test_replies_that_differ_are_named(brief, monkeypatch):
    """As on a device where rows of a pass are not bit-equal: there is the place and the margin."""
    real = ArmFigures.identity

    def differing(self, other, logits=None):
        assert logits is not None
        (run,) = self.runs
        ids = run.replies[other].token_ids
        changed = replace_fields(run.replies[other], token_ids=(*ids[:-1], ids[-1] + 1))
        run = replace_fields(run, replies={**run.replies, other: changed})
        return real(ArmFigures((run,), self.arm), other, logits)

    monkeypatch.setattr(ArmFigures, "identity", differing)
    found = measure_replies(brief, counting(0))
    (difference,) = found.differences
    assert (found.prompts, found.identical) == (1, 0)
    assert (difference.prompt, difference.token) == ("edit/0", 15)
    assert difference.margin >= 0


def test_no_prompt_fits(brief, monkeypatch):
    def refuse(*_arguments, **_options):
        raise ConfigError("too long")

    monkeypatch.setattr(Prompt, "encode", refuse)
    with pytest.raises(ConfigError, match="no prompt could be answered: too long"):
        measure_replies(brief, PartRun(1.0))


def test_speed_next_to_mlx_lm(brief, monkeypatch):
    """Costs that were measured are taken over."""
    monkeypatch.setattr(Engine, "tune", None)
    run = counting(1)
    found = measure_speed(brief, run)
    assert [(arm.category, arm.arm) for arm in found.arms] == [
        (category, arm) for category in ("edit", "prose") for arm in ("mlx-lm", "none", "auto")
    ]
    for arm in found.arms:
        assert (arm.pairs, arm.identical) == (1, 1)
        assert arm.tokens_per_s > 0
        assert (arm.ratio, arm.low, arm.high) == (None, None, None)
    assert found.max_tokens == 16
    assert run.note == "2 of 16 prompts, replies of 16 tokens instead of 96"


@pytest.mark.slow
def test_speed_has_ratios_with_enough_prompts(brief):
    found = measure_speed(brief, counting(9))
    assert [arm.pairs for arm in found.arms] == [5] * 6
    assert [arm.ratio is None for arm in found.arms] == 2 * [True, False, False]
    assert all(arm.low <= arm.ratio <= arm.high for arm in found.arms if arm.ratio is not None)


@pytest.mark.parametrize(
    ("measure", "number", "kept"),
    [
        pytest.param(measure_replies, 4, lambda found: found.prompts == 1, marks=pytest.mark.slow),
        pytest.param(measure_replies, 1, None, marks=pytest.mark.slow),
        (measure_speed, 6, lambda found: [arm.pairs for arm in found.arms] == [1, 1, 1]),
        (measure_speed, 1, None),
        (measure_prefill, 4, lambda found: [one.tokens for one in found.lengths] == [16]),
        (measure_prefill, 1, None),
    ],
)  # fmt: skip
def test_an_interrupt_keeps_what_is_finished(brief, monkeypatch, measure, number, kept):
    monkeypatch.setattr(planning, "TIMED_TOKENS", 16)
    monkeypatch.setattr(prefill, "TEXT_LENGTHS", (16, 32))
    run = stopped(number)
    with pytest.raises(KeyboardInterrupt):
        measure(brief, run)
    assert run.so_far is None if kept is None else kept(run.so_far)


@pytest.fixture
def processes(monkeypatch):
    """Seconds of the processes that are started, or an error, in their order; and the clock."""

    def first(_path, *, limit_s):
        found.limit_s = limit_s
        takes = next(found.takes)
        if isinstance(takes, BaseException):
            raise takes
        found.now += takes
        return takes

    monkeypatch.setattr(start, "first_token_s", first)
    found = SimpleNamespace(now=0.0, takes=iter(()), limit_s=None)
    found.run = lambda seconds: PartRun(seconds, clock=lambda: found.now)
    return found


def test_processes_are_timed_while_there_is_time(processes):
    processes.takes = iter([3.0, *[2.0] * 9])
    assert measure_start(Subject(Path("m")), processes.run(9.0)).seconds == (3.0, 2.0, 2.0)
    assert processes.limit_s == 36.0
    assert measure_start(Subject(Path("m")), processes.run(0.0)).seconds == (2.0,)
    assert processes.limit_s == 30.0
    assert measure_start(Subject(Path("m")), processes.run(100.0)).seconds == (2.0,) * 5


def test_an_interrupt_while_processes_start(processes):
    processes.takes = iter([KeyboardInterrupt(), 1.0, 1.0, KeyboardInterrupt()])
    for kept in (None, (1.0, 1.0)):
        run = processes.run(100.0)
        with pytest.raises(KeyboardInterrupt):
            measure_start(Subject(Path("m")), run)
        assert (run.so_far and run.so_far.seconds) == kept


@pytest.fixture
def script(monkeypatch):
    """Have a program in the place of akunu; what it is called with stays."""
    real = start.subprocess.Popen

    def replaced(code):
        def popen(command, **options):
            assert command[:4] == [sys.executable, "-P", "-m", "akunu_py"]
            popen.seen = (command[4:], options["env"])
            return real([sys.executable, "-c", code], **options)

        monkeypatch.setattr(start.subprocess, "Popen", popen)
        return popen

    return replaced


@pytest.mark.slow
def test_the_first_token_of_a_process(script, monkeypatch, tmp_path):
    monkeypatch.setenv("AKUNU_TRACE_FILE", str(tmp_path / "trace"))
    monkeypatch.setenv("AKUNU_MODEL", "other")
    monkeypatch.chdir(tmp_path)
    called = script("import time; print('x', flush=True); time.sleep(0.5)")
    assert first_token_s(Path("m.gguf"), limit_s=60) > 0
    arguments, variables = called.seen
    assert (arguments[0], arguments[-1]) == ("generate", str(tmp_path / "m.gguf"))
    # Nothing of the user's settings: a trace file would get the prompt.
    assert variables["AKUNU_CONFIG"] == os.devnull
    assert {name for name in variables if name.startswith("AKUNU_")} == {
        "AKUNU_CONFIG", "AKUNU_BLAS", "AKUNU_CACHE_DIR", "AKUNU_DATA_DIR",
    }  # fmt: skip
    assert variables["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("code", "limit_s", "words"),
    [
        ("import sys; sys.exit('Error: no such model')", 60, "exit code 1: Error: no such model"),
        ("raise SystemExit(3)", 60, "exit code 3: it said nothing"),
        ("import os; os.abort()", 60, "exit code -6"),
        ("import time; time.sleep(600)", 0.05, "no token came within"),
    ],
)
def test_a_process_that_fails(script, code, limit_s, words):
    script(code)
    with pytest.raises(NoFirstTokenError, match=words):
        first_token_s(Path("m"), limit_s=limit_s)


@pytest.mark.slow
def test_a_real_process(default_model):
    assert 0 < first_token_s(default_model, limit_s=300) < 300
