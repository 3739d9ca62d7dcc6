"""The parts of `akunu doctor --full`, measured with small models; what needs a Mac, with fakes."""

import itertools
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from akunu_py.bench import speed as speed_module
from akunu_py.bench.hit_rate import DEFAULT
from akunu_py.bench.workloads import CATEGORIES, Prompt, load_prompts
from akunu_py.diagnosis.full import first_token, measure
from akunu_py.diagnosis.full.first_token import NoFirstTokenError, first_token_s
from akunu_py.diagnosis.full.measure import (
    SPEED_CATEGORIES,
    Bench,
    CannotBeMeasuredError,
    Pace,
    PartInterruptedError,
    Turn,
    interleaved,
)
from akunu_py.models.pass_times import PassTimes
from akunu_py.models.session import Session
from akunu_py.system.errors import ConfigError, MemoryLimitError, ModelFormatError

SLOW = Pace(step_s=0.3, prefill_s_per_token=0.01, prompt_tokens=100)
TIMES = PassTimes(20, (0.1,) * 4, {1: (0.1,), 5: (0.2,)})
FAST = Pace(step_s=0.01, prefill_s_per_token=0.0005, prompt_tokens=200)


def ready(path, pace=None):
    bench = Bench(path)
    measure.memory(bench, Turn(1.0))
    measure.load(bench, Turn(1.0))
    bench.pace = pace or bench.pace
    return bench


@pytest.fixture(scope="module")
def toy(default_model):
    return ready(default_model)


@pytest.fixture(scope="module")
def short(tiny_gguf):
    """A model with a context of 256 tokens."""
    return ready(tiny_gguf)


@pytest.fixture
def brief(short, monkeypatch):
    """The short model, on a machine that is slow, with prompts that fit into its context."""
    prompts = [
        Prompt(f"{category}/{number}", category, "raw", f"{number} def f(x): return x")
        for number in range(8)
        for category in SPEED_CATEGORIES
    ]
    monkeypatch.setattr(measure, "interleaved", lambda categories: prompts)
    return Bench(short.path, short.model, short.needs, short.loaded, SLOW, TIMES)


def counting(most):
    """A turn that is over when it was asked `most` times."""

    class Counting(Turn):
        asked = 0

        def is_over(self):
            Counting.asked += 1
            return Counting.asked > most

    return Counting(0.001)


@pytest.mark.slow
def test_the_memory_it_needs_and_what_it_is(toy, default_model):
    bench = Bench(default_model)
    found = measure.memory(bench, Turn(1.0))
    assert bench.model.name == "akunu-tiny"
    assert (bench.model.architecture, bench.model.stored_as) == ("llama", "GGUF, Q8_0")
    assert bench.model.drafting
    assert found.tokens == bench.model.context == 2048
    assert found.weights_bytes > bench.model.file_bytes
    assert found.limit_bytes > 10**8


def test_what_an_mlx_folder_is_called(tmp_path, monkeypatch):
    """A snapshot in the hub's cache lies in a folder that is called by a hash."""
    folder = tmp_path / "models--mlx-community--Qwen3-8B-4bit" / "snapshots" / ("0" * 40)
    folder.mkdir(parents=True)
    needs = SimpleNamespace(
        architecture="qwen3", parameters=1, file_bytes=1, dense=False, context=64, rollback=(),
        weights_bytes=1, cache_bytes=lambda tokens: 2, working_bytes=lambda tokens: 3,
    )  # fmt: skip
    monkeypatch.setattr(measure, "requirements", lambda path: needs)
    for config, stored in (
        ({"quantization": {"bits": 4}}, "MLX, 4 bit"),
        ({"quantization_config": {"bits": "x"}}, "MLX"),
        ({"quantization": 3}, "MLX"),
        ({}, "MLX"),
    ):
        monkeypatch.setattr(measure, "read_folder_config", lambda path, found=config: found)
        bench = Bench(folder)
        assert measure.memory(bench, Turn(1.0)).tokens == 64
        assert (bench.model.name, bench.model.stored_as) == ("Qwen3-8B-4bit", stored)
        assert not bench.model.drafting


def test_loading_finds_the_pace(toy):
    assert 0 < toy.pace.step_s < 60
    assert toy.pace.prompt_tokens > 50
    assert toy.loaded.description.name


def test_a_model_that_is_too_large(default_model, monkeypatch):
    """As on a Mac whose working set is small; the options that the usual message names are not here."""

    def refuse(_models):
        raise MemoryLimitError("it needs 70 GB; --force loads it anyway")

    monkeypatch.setattr(measure, "check_memory", refuse)
    bench = Bench(default_model)
    with pytest.raises(MemoryLimitError, match="take a smaller model") as caught:
        measure.load(bench, Turn(1.0))
    assert "--" not in str(caught.value)
    assert bench.loaded is None


def test_a_file_that_is_no_model(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(100))
    for part in (measure.memory, measure.load):
        with pytest.raises(ModelFormatError):
            part(Bench(tmp_path / "m.gguf"), Turn(1.0))


def test_replies_are_as_long_as_the_time_lets_them_be():
    assert FAST.reply_tokens(1000.0, replies=10, most=64) == 64
    assert SLOW.reply_tokens(10.0, replies=10, most=64) == 16
    # 20 s a reply, of which 1 s is for the prompt.
    assert SLOW.reply_tokens(200.0, replies=10, most=64) == int(19 / (1.3 * 0.3))


def test_rows(short):
    turn = Turn(1000.0)
    found = measure.rows(short, turn)
    assert found.equal
    assert found.reproducible_equal
    assert [one.rows for one in found.by_size][-1] == 33
    assert found.different_sizes == ()
    assert turn.note == ""
    slow = Turn(0.0)
    assert [one.rows for one in measure.rows(short, slow).by_size][-1] == 9
    assert "more than 9 rows were left out" in slow.note


def test_rows_as_a_gpu_may_compute_them(short, monkeypatch):
    """Plain passes differ, reproducible ones do not."""
    monkeypatch.setattr(Session, "bit_equal_to", lambda self, most: most * self._reproducible)
    found = measure.rows(short, Turn(0.0))
    assert (found.equal, found.reproducible_equal) == (False, True)


def test_a_model_that_cannot_go_back(short, monkeypatch):
    """As one with a cache of an unknown kind: nothing is drafted, and no pass is reproducible."""
    real = Session.__init__

    def refuse(self, model, *, context, reproducible=False, **options):
        if reproducible:
            raise ConfigError("this model keeps its context in a cache that cannot go back")
        real(self, model, context=context, **options)

    monkeypatch.setattr(Session, "__init__", refuse)
    assert measure.rows(short, Turn(0.0)).reproducible_equal is None
    bench = Bench(short.path, short.model, short.needs, short.loaded, short.pace)
    bench.model = SimpleNamespace(drafting=False)
    for part in (measure.greedy, measure.sampled, measure.reproducible):
        with pytest.raises(CannotBeMeasuredError, match="cannot go back"):
            part(bench, Turn(1.0))


@pytest.mark.parametrize(
    ("seconds", "step_s", "rounds"),
    [
        (60.0, 0.01, 9),
        (60.0, 0.2, 5),
        (40.0, 0.2, 5),
        (20.0, 0.2, 1),
        (50.0, 0.6, 1),
        (30.0, 0.2, 5),
        (1e-9, 1.0, 1),
    ],
)
def test_rounds_that_fit(seconds, step_s, rounds):
    """Five, for an interval, where that takes twice the time at most."""
    assert measure._rounds(seconds, step_s) == rounds


@pytest.mark.slow
def test_costs(short, tmp_path, monkeypatch):
    monkeypatch.setenv("AKUNU_CACHE_DIR", str(tmp_path))
    told = []
    turn = Turn(1.0, told.append)
    bench = Bench(short.path, short.model, short.needs, short.loaded, Pace(1e-5, 1e-5, 10))
    found = measure.costs(bench, turn)
    assert found.rounds == 9
    assert [one.rows for one in found.sizes][:3] == [1, 2, 3]
    assert all(one.low <= one.cost <= one.high for one in found.sizes)
    assert found.context_tokens == 128
    assert found.step_bytes > 0
    assert "round 10 of 10" in told
    assert bench.times.unit_s == found.plain_step_s
    # As `akunu tune`, so that replies know it from now on.
    assert list((tmp_path / "costs").iterdir())


def test_costs_of_a_slow_machine_have_no_ratio(short):
    turn = Turn(0.0)
    bench = Bench(short.path, short.model, short.needs, short.loaded, SLOW)
    found = measure.costs(bench, turn)
    assert found.rounds == 1
    assert {(one.cost, one.pays_from, one.pays_from_low) for one in found.sizes} == {(None,) * 3}
    assert "no time for 5 rounds" in turn.note


def test_a_context_that_is_too_short_for_passes(short):
    loaded = replace(short.loaded, description=replace(short.loaded.description, context=64))
    bench = Bench(short.path, short.model, short.needs, loaded, FAST)
    with pytest.raises(CannotBeMeasuredError, match="64 tokens is too short"):
        measure.costs(bench, Turn(1.0))


@pytest.mark.parametrize(
    ("part", "temperature", "reproducible"),
    [
        (measure.greedy, 0.0, False),
        (measure.sampled, 0.8, False),
        (measure.reproducible, 0.0, True),
    ],
)
def test_replies_with_and_without_drafting(brief, part, temperature, reproducible):
    turn = counting(1)
    found = part(brief, turn)
    assert (found.temperature, found.reproducible) == (temperature, reproducible)
    assert (found.prompts, found.identical, found.differences) == (2, 2, ())
    assert (found.shipped, found.left_out, found.max_tokens) == (16, 0, 16)
    assert 0 <= found.accepted <= found.drafted
    assert turn.note == "replies of 16 tokens instead of 64"


def test_replies_that_differ_are_named(brief, monkeypatch):
    """As on a device where rows of a pass are not bit-equal: there is the place and the margin."""
    outcomes = []

    def run_hit_rate(engine, prompts, config, **options):
        assert (config.drafter, config.draft_budget) == ("auto", "always")
        report = measure_run(engine, prompts[:1], config)
        (outcome,) = report.outcomes
        other = (*outcome.on.token_ids[:-1], 1 + outcome.on.token_ids[-1])
        changed = type(outcome)(
            **{name: getattr(outcome, name) for name in outcome.__slots__}
            | {"on": type(outcome.on)(**{name: getattr(outcome.on, name) for name in outcome.on.__slots__} | {"token_ids": other}), "top2_margin": 0.25}
        )  # fmt: skip
        outcomes.append(changed)
        return type(report)(**{**vars(report), "outcomes": (changed,)})

    measure_run = measure.run_hit_rate
    monkeypatch.setattr(measure, "run_hit_rate", run_hit_rate)
    found = measure.greedy(brief, Turn(0.0))
    (difference,) = found.differences
    assert (found.prompts, found.identical) == (1, 0)
    assert difference.prompt == outcomes[0].id
    assert (difference.token, difference.margin) == (15, 0.25)


@pytest.mark.slow
def test_an_interrupt_keeps_finished_replies(brief):
    def stop_after(replies):
        def tell(text):
            if text == f"{replies} replies":
                raise KeyboardInterrupt

        return Turn(1e9, tell)

    with pytest.raises(PartInterruptedError) as caught:
        measure.greedy(brief, stop_after(3))
    assert caught.value.figures.prompts == 1
    with pytest.raises(PartInterruptedError) as caught:
        measure.greedy(brief, stop_after(1))
    assert caught.value.figures is None


def test_no_prompt_fits(brief, monkeypatch):
    monkeypatch.setattr(
        "akunu_py.bench.hit_rate.encode_prompt",
        lambda engine, prompt: (_ for _ in ()).throw(ConfigError("too long")),
    )
    with pytest.raises(ConfigError, match="no prompt could be answered: too long"):
        measure.greedy(brief, Turn(1.0))


def test_any_beginning_of_the_prompts_has_all_categories():
    prompts = interleaved(CATEGORIES)
    assert sorted(prompt.id for prompt in prompts) == sorted(one.id for one in load_prompts())
    sessions = [key for key, _ in itertools.groupby(prompts, key=lambda item: item.session)]
    assert len(sessions) == len(set(sessions)), "turns of a session follow each other"
    categories = [key for key, _ in itertools.groupby(prompt.category for prompt in prompts)]
    assert set(categories[:7]) == set(CATEGORIES)
    edits = [len(prompt.last_user_text) for prompt in prompts if prompt.category == "edit"]
    assert edits == sorted(edits)


def test_speed_next_to_mlx_lm(brief, monkeypatch):
    """Costs that were measured are taken over."""
    monkeypatch.setattr(speed_module, "measure_passes", None)
    turn = counting(1)
    found = measure.speed(brief, turn)
    assert [(arm.category, arm.arm) for arm in found.arms] == [
        (category, arm) for category in ("edit", "prose") for arm in ("mlx-lm", "none", "auto")
    ]
    for arm in found.arms:
        assert (arm.pairs, arm.identical) == (1, 1)
        assert arm.tokens_per_s > 0
        assert (arm.ratio, arm.low, arm.high) == (None, None, None)
    assert found.max_tokens == 16
    assert turn.note == "2 of 16 prompts, replies of 16 tokens instead of 96"


@pytest.mark.slow
def test_speed_has_ratios_with_enough_prompts(brief):
    found = measure.speed(brief, counting(9))
    assert len(found.arms) > 1
    for arm in found.arms:
        assert arm.pairs == 5
        if arm.arm == "mlx-lm":
            assert arm.ratio is None
        else:
            assert 0 < arm.low <= arm.ratio <= arm.high


def test_an_interrupt_keeps_finished_cases(brief, monkeypatch):
    monkeypatch.setattr(measure, "_MOST_TIMED_TOKENS", 16)

    def stop_at(reply):
        def tell(text):
            if text == f"{reply} replies":
                raise KeyboardInterrupt

        return Turn(1e9, tell)

    with pytest.raises(PartInterruptedError) as caught:
        measure.speed(brief, stop_at(5))
    assert [(arm.category, arm.pairs) for arm in caught.value.figures.arms] == [("edit", 1)] * 3
    with pytest.raises(PartInterruptedError) as caught:
        measure.speed(brief, stop_at(1))
    assert caught.value.figures is None


def test_prefill_and_its_memory(short, monkeypatch):
    monkeypatch.setattr(measure, "_LENGTHS", (16, 64, 256))
    turn = Turn(1000.0)
    found = measure.prefill(short, turn)
    assert [length.tokens for length in found.lengths] == [16, 64]
    for length in found.lengths:
        assert len(length.seconds) == 3
        # Other tests' models are in the memory of this process, too.
        assert length.peak_bytes > short.model.file_bytes
        assert length.foreseen_bytes == short.needs.total_bytes(length.tokens + 1)
    assert turn.note == "prompts of 256 tokens do not fit into the context"


def test_prefill_on_a_slow_machine(short, monkeypatch):
    monkeypatch.setattr(measure, "_LENGTHS", (16, 64))
    bench = Bench(short.path, short.model, short.needs, short.loaded, Pace(1.0, 1.0, 10))
    turn = Turn(0.0)
    (length,) = measure.prefill(bench, turn).lengths
    assert (length.tokens, len(length.seconds)) == (16, 1)
    assert turn.note == "there was no time for prompts of 64 tokens"


def test_prefill_in_a_context_that_is_too_short(short, monkeypatch):
    assert [one.tokens for one in measure.prefill(short, Turn(0.0)).lengths] == [128]
    monkeypatch.setattr(measure, "_LENGTHS", (256,))
    with pytest.raises(CannotBeMeasuredError, match="256 tokens do not fit into the context"):
        measure.prefill(short, Turn(1.0))


def test_an_interrupt_keeps_finished_lengths(short, monkeypatch):
    monkeypatch.setattr(measure, "_LENGTHS", (16, 32))

    def tell(text):
        if text == "32 tokens":
            raise KeyboardInterrupt

    with pytest.raises(PartInterruptedError) as caught:
        measure.prefill(short, Turn(1000.0, tell))
    assert [one.tokens for one in caught.value.figures.lengths] == [16]


def test_processes_are_timed_while_there_is_time(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    taken = iter([3.0, 2.0, 2.0, 2.0, 2.0, 2.0])

    def first(_path, *, limit_s):
        seconds = next(taken)
        clock.now += seconds
        return seconds

    monkeypatch.setattr(measure, "first_token_s", first)
    found = measure.start(Bench(Path("m")), Turn(9.0, clock=lambda: clock.now))
    assert found.seconds == (3.0, 2.0, 2.0)
    assert measure.start(Bench(Path("m")), Turn(0.0, clock=lambda: clock.now)).seconds == (2.0,)


@pytest.mark.parametrize(("seconds", "limit_s"), [(1.0, 30.0), (27.0, 108.0)])
def test_a_process_that_hangs_does_not_take_all_the_time(monkeypatch, seconds, limit_s):
    def first(_path, *, limit_s):
        raise NoFirstTokenError(f"{limit_s} s")

    monkeypatch.setattr(measure, "first_token_s", first)
    with pytest.raises(NoFirstTokenError, match=f"{limit_s} s"):
        measure.start(Bench(Path("m")), Turn(seconds))


@pytest.mark.parametrize("before", [0, 2])
def test_an_interrupt_while_processes_start(monkeypatch, before):
    calls = []

    def first(_path, *, limit_s):
        calls.append(limit_s)
        if len(calls) > before:
            raise KeyboardInterrupt
        return 1.0

    monkeypatch.setattr(measure, "first_token_s", first)
    with pytest.raises(PartInterruptedError) as caught:
        measure.start(Bench(Path("m")), Turn(100.0))
    kept = caught.value.figures
    assert (kept and kept.seconds) == ((1.0,) * before or None)


def script(monkeypatch, code):
    """Have another program in the place of akunu; what it is called with stays."""
    real = first_token.subprocess.Popen

    def popen(command, **options):
        assert command[:4] == [sys.executable, "-P", "-m", "akunu_py"]
        popen.seen = (command[4:], options["env"])
        return real([sys.executable, "-c", code], **options)

    monkeypatch.setattr(first_token.subprocess, "Popen", popen)
    return popen


@pytest.mark.slow
def test_the_first_token_of_a_process(monkeypatch, tmp_path):
    monkeypatch.setenv("AKUNU_TRACE_FILE", str(tmp_path / "trace"))
    monkeypatch.setenv("AKUNU_MODEL", "other")
    monkeypatch.chdir(tmp_path)
    seen = script(monkeypatch, "import time; print('x', flush=True); time.sleep(0.5)")
    taken = first_token_s(Path("m.gguf"), limit_s=60)
    assert taken > 0
    arguments, variables = seen.seen
    assert arguments[0] == "generate"
    assert arguments[-1] == str(tmp_path / "m.gguf")
    # Nothing of the user's settings: a trace file would get the prompt.
    assert variables["AKUNU_CONFIG"] == os.devnull
    assert {name for name in variables if name.startswith("AKUNU_")} == {
        "AKUNU_CONFIG", "AKUNU_BLAS", "AKUNU_CACHE_DIR", "AKUNU_DATA_DIR",
    }  # fmt: skip
    assert variables["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "import sys; sys.exit('Error: there is no such model')",
            "exit code 1: Error: there is no",
        ),
        ("raise SystemExit(3)", "exit code 3: it said nothing"),
        ("import os; os.abort()", "exit code -6"),
    ],
)
def test_a_process_that_fails(monkeypatch, code, words):
    script(monkeypatch, code)
    with pytest.raises(NoFirstTokenError, match=words):
        first_token_s(Path("m"), limit_s=60)


def test_a_process_that_says_nothing_is_ended(monkeypatch):
    script(monkeypatch, "import time; time.sleep(600)")
    with pytest.raises(NoFirstTokenError, match="no token came within"):
        first_token_s(Path("m"), limit_s=0.05)


def test_replies_are_compared_with_the_plain_ones():
    """`run_hit_rate` decodes plainly beside: its default of another drafter must not sneak in."""
    assert DEFAULT.drafter != measure.DRAFTER


@pytest.mark.slow
def test_a_real_process(default_model):
    assert 0 < first_token_s(default_model, limit_s=300) < 300
