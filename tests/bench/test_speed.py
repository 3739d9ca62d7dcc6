"""`akunu bench speed`: what is timed, what is forced, and what the figures are."""

import json
import math

import mlx.core as mx
import msgspec
import pytest
from click.testing import CliRunner

from akunu_py import ConfigError
from akunu_py.bench import speed as speed_module
from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.result_file import parse_result
from akunu_py.bench.resume import ItemStore
from akunu_py.bench.run import turned
from akunu_py.bench.speed import Case, prompt_cases, run_speed
from akunu_py.bench.speed_report import BASELINE, Run, summary
from akunu_py.bench.workloads import load_prompts
from akunu_py.cli.main import cli
from akunu_py.decoding.budget import Budget
from akunu_py.models.baseline import Baseline, plain_passes
from akunu_py.models.load import load_model
from akunu_py.models.pass_times import PassTimes, measure_passes
from akunu_py.models.random_models import build_random_model
from akunu_py.models.session import Session
from akunu_py.sampling.forced import ForcedSampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.decode_stats import SourceStats
from akunu_py.values.types import Draft, GenerationConfig

PROMPT = tuple(range(5, 25))
TEXT = tuple(30 + index % 7 for index in range(120))


@pytest.fixture(scope="module")
def loaded(tiny_gguf):
    return load_model(tiny_gguf)


@pytest.mark.slow
def test_all_arms_give_the_models_own_tokens(loaded):
    cases = [Case("a", "a", PROMPT), Case("b", "b", PROMPT[:9])]
    seen = []
    report = run_speed(
        loaded, cases, max_tokens=24, rounds=2, repeats=1, num_draft_tokens=6,
        progress=lambda *done: seen.append(done),
    )  # fmt: skip
    assert seen[-1] == (16, 16)
    assert [arm.arm for arm in report.arms] == [BASELINE, "none", "ngram", "auto"]
    assert not report.forced
    for arm in report.arms:
        assert (arm.identical, arm.pairs) == (4, 4)
        assert arm.tokens_per_s > 0
        assert arm.peak_memory_bytes > 1e5
        assert arm.arm == BASELINE or 0 <= arm.outside < 1
        # Two sessions, whatever the rounds, are too few for a ratio.
        assert arm.ratio == arm.median_ratio == Ratio(None, None, None, 4)
    assert all(len(run.token_ids) == 24 for run in report.runs)
    plain = next(run for run in report.runs if run.arm == "none")
    assert plain.num_timed_tokens == plain.num_passes == 23
    result = report.findings()
    assert result.costs.costs[5] > 0
    assert len({item["id"] for item in result.items}) == 16
    hashes = {arm["token_hash"] for arm in result.deterministic["arms"].values()}
    assert len(hashes) == 1


def test_what_auto_remembers_is_forgotten_between_rounds(loaded, monkeypatch):
    """A reply may be copied by later cases, as in an engine, and never by itself come again."""
    # Times of this machine are to decide nothing.
    monkeypatch.setattr(Budget, "limit", lambda self, most: most)
    monkeypatch.setattr(Budget, "trim", lambda self, draft, *_more: draft)
    monkeypatch.setattr(Budget, "_tell_curve", lambda self: None)
    text = tuple(30 + index * 37 % 101 for index in range(101))  # no token twice
    cases = [Case(name, name, (*PROMPT, 140 + place), text) for place, name in enumerate("ab")]
    report = run_speed(loaded, cases, max_tokens=30, rounds=2, repeats=1, drafters=["auto"])
    accepted = {}
    for run in report.runs:
        if run.arm == "auto":
            accepted.setdefault(run.case, []).append(run.num_accepted)
    assert accepted["a"] == [0, 0]
    assert min(accepted["b"]) > 10


def test_a_recorded_text_is_forced_on_every_arm(loaded):
    report = run_speed(loaded, [Case("a", "a", PROMPT, TEXT)], max_tokens=40, repeats=1)
    assert report.forced
    for run in report.runs:
        assert run.token_ids == TEXT[:40]
    copying = {run.arm: run for run in report.runs}["ngram"]
    assert copying.num_timed_tokens >= 39


class Combined:
    """Drafts the recorded text after its prompt: a token as copied, one of a head, a wrong one."""

    name = "ngram"

    def __init__(self):
        self._size = 0

    def observe(self, tokens):
        self._size += len(tokens)

    def propose(self, limit):
        right = TEXT[self._size - len(PROMPT) :]
        tokens = (*right[:2], right[2] ^ 1)[:limit]
        return Draft.chain(tokens, "auto", origins=("prompt", "head", "head")[: len(tokens)])


def test_each_source_of_drafts_has_a_line_of_its_own(loaded, monkeypatch):
    """By the origins of tokens, whatever their names; of timed steps alone."""
    monkeypatch.setattr(Budget, "limit", lambda self, most: most)
    monkeypatch.setattr(Budget, "trim", lambda self, draft, *_more: draft)
    monkeypatch.setattr(speed_module, "make_drafter", lambda *_, **__: Combined())
    report = run_speed(
        loaded, [Case("a", "a", PROMPT, TEXT)], max_tokens=31, repeats=1, drafters=["ngram"],
        num_draft_tokens=3, rounds=2,
    )  # fmt: skip
    _, arm = report.arms
    # A step makes three tokens; in each round there are 11, of which the first is not timed.
    passes = arm.num_timed_tokens // 3
    assert passes == 2 * 10
    assert arm.sources == (
        SourceStats("head", 2 * passes, passes), SourceStats("prompt", passes, passes),
    )  # fmt: skip
    found = report.findings()
    _, table = found.tables
    assert table.rows == (
        ("ngram", "head", 2 * passes, passes, 0.5, pytest.approx(1 / 3)),
        ("ngram", "prompt", passes, passes, 1.0, pytest.approx(1 / 3)),
    )
    assert found.timing["arms"]["ngram"]["sources"]["head"]["hit_rate"] == 0.5
    assert found.timing["arms"][BASELINE]["sources"] == {}
    kept = parse_rows(found)
    assert [run.sources for run in kept if run.arm == "ngram"] == [
        run.sources for run in report.runs if run.arm == "ngram"
    ]


def parse_rows(findings):
    """The rows of findings, as another run reads them from a file."""
    names = {field.name for field in msgspec.structs.fields(Run)}
    rows = [{name: row[name] for name in names & set(row)} for row in findings.items]
    return msgspec.json.decode(msgspec.json.encode(rows), type=list[Run])


def test_the_baseline_alone(loaded):
    baseline = Baseline(loaded.model)
    first = baseline.run(PROMPT, 12)
    assert baseline.run(PROMPT, 12).token_ids == first.token_ids
    assert baseline.run(PROMPT[:7], 12).token_ids != first.token_ids
    assert baseline.run(PROMPT, 12).token_ids == first.token_ids
    assert baseline.run(PROMPT, 5, (1, 2, 3)).token_ids[:3] == (1, 2, 3)
    assert first.num_timed_tokens == 11


def test_a_forced_choice_costs_a_choice(loaded):
    """The model's own choice is computed before it is replaced, and behind the text it counts."""
    session = Session(loaded.model, context=100)
    chain = TransformChain.from_config(GenerationConfig(), session.vocabulary_size)
    sampler = ForcedSampler(chain, 3, (9, 8), session.vocabulary_size)
    session.begin([5, 6, 7], sampler, 20)
    assert session.choose(7, Draft.chain([9, 8]))[:2] == [9, 8]
    row = mx.arange(session.vocabulary_size, dtype=mx.float32)[None]
    assert sampler.choose(row, 2).item() == session.vocabulary_size - 1
    assert sampler.choose(row, 3).item() == 9
    assert sampler.choose(row, 5).item() == session.vocabulary_size - 1
    # NaN that reaches argmax shows that the row was looked at, not skipped.
    assert sampler.choose(row, 4).dtype == row.argmax().dtype


def run(arm, case, tokens, seconds, **more):
    return Run(arm, case, case, (1,) * tokens, tokens, seconds, 100, **more)


def test_ratios_are_of_pairs():
    seconds = {"a": 1.0, "b": 1.0, "c": 9.0, "d": 1.0, "e": 1.0}
    theirs = [run(BASELINE, name, 10, found) for name, found in seconds.items()]
    ours = [
        run("x", "c", 10, 3.0, num_passes=5, num_drafted=8, num_accepted=4, target_s=2.0),
        run("x", "a", 10, 1.0, num_passes=5, target_s=0.5),
        run("x", "b", 10, 0.5, num_passes=10, target_s=0.5),
        run("x", "d", 10, 0.5, num_passes=10, target_s=0.5),
        run("x", "e", 10, 0.5, num_passes=10, target_s=0.5),
    ]
    found = summary(ours, theirs)
    assert found.tokens_per_s == pytest.approx(50 / 5.5)
    assert found.ratio.ratio == pytest.approx((50 / 5.5) / (50 / 13))
    assert found.ratio.low < found.ratio.ratio < found.ratio.high
    assert found.median_ratio.ratio == pytest.approx(2.0)
    assert 1.0 <= found.median_ratio.low <= 2.0 <= found.median_ratio.high <= 3.0
    assert found.tokens_per_pass == pytest.approx(50 / 40)
    assert found.hit_rate == 0.5
    assert found.outside == pytest.approx(1 - 4.0 / 5.5)
    assert found.identical == 5
    assert math.isclose(summary(theirs, theirs).ratio.ratio, 1)


def test_every_arm_comes_first_and_last():
    arms = ("a", "b", "c")
    orders = [turned(arms, number) for number in range(12)]
    assert {order[0] for order in orders} == {order[-1] for order in orders} == set(arms)
    assert all(sorted(order) == list(arms) for order in orders)


def test_a_case_that_does_not_fit_is_left_out(loaded):
    long = Case("long", "s", (1,) * 200)
    report = run_speed(loaded, [long, Case("a", "a", PROMPT)], drafters=["none"], max_tokens=12)
    assert {run.case for run in report.runs} == {"a"}
    result = report.findings()
    (failure,) = result.failures
    assert failure.item == "long"
    assert "does not fit into the context" in failure.error


@pytest.mark.slow
def test_a_run_that_ends_early(loaded):
    """Whole cases alone, the first one always; that is no interrupt."""
    cases = [Case(name, name, PROMPT) for name in "abc"]
    asked = []
    report = run_speed(
        loaded, cases, drafters=["none"], max_tokens=8, repeats=1,
        until=lambda: asked.append(1) or len(asked) == 2,
    )  # fmt: skip
    assert [(run.arm, run.case) for run in report.runs] == [
        (BASELINE, "a"), ("none", "a"), ("none", "b"), (BASELINE, "b"),
    ]  # fmt: skip
    assert report.finished


def test_costs_that_are_known_are_not_measured_again(loaded, monkeypatch):
    monkeypatch.setattr(speed_module, "measure_passes", None)
    times = PassTimes(20, (0.1,) * 4, {1: (0.1,), 5: (0.2,)})
    report = run_speed(loaded, [Case("a", "a", PROMPT)], max_tokens=8, times=times)
    assert report.times is times


def test_mlx_lm_decodes_with_the_model_wired_as_its_users_have_it(loaded, monkeypatch):
    """`stream_generate` wires the model on Metal; without that it would be measured too slow."""
    wired = []

    def set_limit(limit):
        wired.append(limit)
        return 7

    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 10**12})
    monkeypatch.setattr(mx, "set_wired_limit", set_limit)

    def steps(*arguments, **options):
        for number in range(3):
            wired.append(number)
            yield number, None

    monkeypatch.setattr("akunu_py.models.baseline.generate_step", steps)
    Baseline(loaded.model).run(PROMPT, 3)
    expected = [10**12, 0, 1, 2, 7]
    assert wired == expected
    wired.clear()
    assert len(list(plain_passes(loaded.model, PROMPT, 3))) == 3
    assert wired == expected


def test_prompts_become_cases(loaded):
    class Refusing:
        has_chat_template = False

        def encode(self, text):
            if "moth" in text:
                raise ValueError("no such character")
            return [1, 2]

    prompts = load_prompts(["novel"], limit=2)
    cases, failures = prompt_cases(Refusing(), prompts)
    assert cases == [Case(prompts[1].id, prompts[1].session, (1, 2))]
    assert [(one.item, one.error) for one in failures] == [(prompts[0].id, "no such character")]


def test_what_cannot_be_measured(loaded):
    with pytest.raises(ConfigError, match="nothing to measure"):
        run_speed(loaded, [])
    with pytest.raises(ConfigError, match="does not fit"):
        run_speed(loaded, [Case("long", "s", (1,) * 200)], max_tokens=40)
    with pytest.raises(ConfigError, match="no drafter"):
        run_speed(loaded, [Case("a", "a", PROMPT)], drafters=["magic"])


def test_random_models_are_the_same_each_time(loaded):
    first, second = (build_random_model("llama-tiny", loaded.tokenizer).model for _ in range(2))
    tokens = mx.array([[3, 4, 5]])
    logits = first(tokens)
    assert mx.array_equal(logits, second(tokens))
    assert logits.dtype == mx.float32
    assert bool(mx.isfinite(logits).all())
    with pytest.raises(ConfigError, match="no random model named 'llama-1t'"):
        build_random_model("llama-1t", loaded.tokenizer)


def command(*arguments):
    result = CliRunner().invoke(cli, ["bench", "speed", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "edits.jsonl"
    text = "def read(path):\n    return path.read_text()\n" * 20
    items = [
        {"id": "short", "category": "c", "prompt": "x", "output": "y"},
        {"id": "long", "category": "c", "prompt": text * 9, "output": text},
        {"id": "good", "category": "c", "prompt": text, "output": text},
    ]
    path.write_text("\n".join(map(json.dumps, items)))
    return path


@pytest.mark.slow
def test_the_command_with_a_random_model_and_a_trace(trace, monkeypatch):
    # What passes cost is measured once, not five times.
    monkeypatch.setattr(
        speed_module,
        "measure_passes",
        lambda session, prompt, *, repeats: measure_passes(session, prompt, repeats=1),
    )
    options = ["--random-model", "llama-tiny", "--trace", trace, "--max-tokens", 16]
    code, output = command(*options, "--json", "--drafter", "ngram")
    assert code == 0
    # A curve measured on a busy machine may be doubted below.
    result = parse_result(next(line for line in output.splitlines() if line.startswith("{")))
    assert result.model.name == "llama-tiny, random weights"
    assert result.model.sha256 == ""
    assert [item["id"] for item in result.items] == ["edits/good by mlx-lm", "edits/good by ngram"]
    fixed = result.deterministic["arms"]
    assert list(fixed) == [BASELINE, "ngram"]
    # Both were forced to the recording.
    assert fixed["ngram"] == fixed[BASELINE]
    assert fixed["ngram"]["identical"] == 1
    assert result.timing["ratios"]["ngram"]["pairs"] == 1
    assert result.timing["traffic"]["weight_bytes"] > 0
    code, output = command(*options, "--drafter", "none")
    assert "random weights" in output
    assert "forced to recorded replies" in output
    code, output = command(*options, "--max-prompt-tokens", 8)
    assert code == 2
    assert "has no item with at most 8" in output


def test_the_context_is_a_bound(trace, tiny_gguf):
    code, output = command(tiny_gguf, "--trace", trace, "--context", 9999)
    assert code == 2
    assert "--context is 9999; this model allows 2 to" in output
    code, output = command(tiny_gguf, "--trace", trace, "--context", 40)
    assert code == 2
    assert "does not fit into the context of 40" in " ".join(output.split())


def test_models_are_given_by_their_names(trace, tiny_gguf, hub_cache):
    CliRunner().invoke(cli, ["models", "alias", "tiny", str(tiny_gguf)], catch_exceptions=False)
    options = ["--trace", trace, "--max-prompt-tokens", 8]
    # What is asked for last is the trace: both models were found and loaded.
    code, output = command("tiny", "--draft-model", "tiny", *options)
    assert (code, "has no item with at most 8" in " ".join(output.split())) == (2, True)
    for arguments in (["tiny2"], ["tiny", "--draft-model", "tiny2"]):
        code, output = command(*arguments, *options)
        assert code == 2
        assert "Did you mean tiny?" in " ".join(output.split())


@pytest.mark.slow
def test_a_run_goes_on_and_auto_knows_what_it_knew(loaded, tmp_path, monkeypatch):
    monkeypatch.setattr(Budget, "trim", lambda self, draft, *_more: draft)
    monkeypatch.setattr(Budget, "_tell_curve", lambda self: None)
    text = tuple(30 + index * 37 % 101 for index in range(101))
    cases = [Case(name, name, (*PROMPT, 140 + place), text) for place, name in enumerate("ab")]
    options = {"max_tokens": 30, "repeats": 1, "drafters": ["none", "auto"]}
    run_one = speed_module._run
    asked = []

    def interrupted(bench, arm, case, max_tokens):
        asked.append((arm, case.id))
        # Three arms warm up and three decode the first case.
        if len(asked) == 8:
            raise KeyboardInterrupt
        return run_one(bench, arm, case, max_tokens)

    monkeypatch.setattr(speed_module, "_run", interrupted)
    with ItemStore(tmp_path, {}) as store:
        cut = run_speed(loaded, cases, store=store, **options)
    assert not cut.finished
    assert {run.case for run in cut.runs} == {"a"}
    asked.clear()
    asked += [("", "")] * 8
    with ItemStore(tmp_path, {}) as store:
        report = run_speed(loaded, cases, store=store, **options)
    assert report.finished
    # Of the first case, behind the warm-up, auto alone: it has to know it for the second one.
    assert asked[11] == ("auto", "a")
    assert {name for _, name in asked[12:]} == {"b"}
    auto = {run.case: run for run in report.runs if run.arm == "auto"}
    assert auto["a"].num_accepted == 0
    assert auto["b"].num_accepted > 10
    assert len(report.runs) == 6


def test_an_interrupt_in_the_first_case_leaves_no_arm(loaded, monkeypatch):
    run_one = speed_module._run
    asked = []

    def interrupted(*arguments):
        asked.append(1)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return run_one(*arguments)

    monkeypatch.setattr(speed_module, "_run", interrupted)
    options = {"max_tokens": 10, "repeats": 1, "drafters": ["none", "ngram"]}
    report = run_speed(loaded, [Case("a", "a", PROMPT)], **options)
    result = report.findings()
    assert report.arms == ()
    assert not result.finished
    assert result.tables == ()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["m.gguf", "--random-model", "llama-135m"], "either a MODEL or"),
        (["--tokenizer", "x.gguf"], "goes with --random-model"),
        (["--random-model", "llama-9"], "no random model"),
        (["--kv-bits", "8"], "--kv-bits has no counterpart"),
        (["--random-model", "llama-tiny", "--kv-bits", "8"], "--kv-bits has no counterpart"),
        (["--random-model", "llama-tiny", "--reproducible"], "--reproducible has no counterpart"),
        (["--random-model", "llama-tiny", "--compute-type", "float16"], "leave it out"),
        (["--random-model", "llama-tiny", "--context", "64"], "leave it out"),
        (["--trace", "absent.jsonl"], "absent.jsonl cannot be read"),
    ],
)
def test_mistakes_of_the_caller(arguments, words):
    code, output = command(*arguments)
    assert code == 2
    assert words in " ".join(output.split())
