"""`akunu bench sweep` as a user meets it, on recorded texts and on models."""

import itertools
import json
import types
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from command_help import printed_and_imported

from akunu_lab.replay import trace_replays
from akunu_lab.replay.traces import half_of
from akunu_lab.study.store import ItemStore
from akunu_lab.sweep.plan import make_plan
from akunu_lab.sweep.recorded import record_replies
from akunu_lab.sweep.report import deterministic_figures, make_report, timing_figures
from akunu_lab.sweep.run import RECORDED, SweepOptions, run_sweep
from akunu_py.bench.result_file import BenchResult
from akunu_py.bench.workloads import Prompt
from akunu_py.cli.main import cli
from akunu_py.engine.engine import Engine
from akunu_py.values.types import GenerationConfig

TEXT = "the draft is the token of the model and the draft is the token of the world "
GRID = ["--drafter", "ngram", "--num-draft-tokens", "1..3", "--order", "3,4"]


def run(*arguments):
    return CliRunner().invoke(cli, ["bench", "sweep", *map(str, arguments)], terminal_width=100)


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "edits.jsonl"
    records = [
        {
            "id": f"{number}", "category": "edit" if number % 2 else "chat",
            "prompt": TEXT * 2, "output": TEXT * (1 + number % 3) + str(number),
        }
        for number in range(10)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def replayed(trace, tiny_gguf):
    return [
        "--trace", trace, "--tokenizer", tiny_gguf, "--curve", "m5-max-70b-4bit",
        "--processes", 1, *GRID,
    ]  # fmt: skip


def test_the_terminal(replayed, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = run(*replayed, "--drafter", "auto")
    assert result.exit_code == 0, result.output
    shown = result.stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert "\x1b" not in shown  # no colours where nobody sees them
    assert "12 cells replayed on 10 items; passes cost as m5-max-70b-4bit" in shown
    # The map: a row for each order and for auto, a column for each number of tokens.
    start = shown.index("Best speed by order (rows) and draft tokens (columns)")
    lines = shown[start:].splitlines()
    assert lines[1].split() == ["order", "\\", "draft", "tokens", "1", "2", "3", "4", "48"]
    assert [line.split()[0] for line in lines[3:6]] == ["3", "4", "auto"]
    assert all("*" in line for line in lines[3:6])  # the best of each row
    assert lines[3].split()[-2:] == ["-", "-"]  # 4 tokens come with order 4 alone
    assert "auto has no order: not varied" in shown
    words = " ".join(shown.split())
    assert "Keep the default" in words or "Take --drafter" in words


def test_json_is_the_result_and_the_same_twice(trace, replayed):
    first = json.loads(run(*replayed, "--json").stdout)
    with trace.open("a") as file:
        file.write("[]\n")
    again = run(*replayed, "--json")
    assert again.stderr.startswith(f"failed: {trace}, line 11: an item is a JSON object")
    second = json.loads(again.stdout)
    assert first["command"] == "sweep"
    assert first["finished"] is True
    assert first["deterministic"] == second["deterministic"]
    cells = first["deterministic"]["cells"]
    assert len(cells) == 2 + 6 + 1
    assert cells["none"]["tokens_per_pass"] == 1
    assert cells["none"]["normalised_speed"] == pytest.approx(1, rel=1e-12)
    assert cells["ngram num_draft_tokens=3 order=4 min_match=1"]["tokens_per_pass"] > 2
    assert {item["category"] for item in first["items"]} == {"edit", "chat"}
    assert {item["half"] for item in first["items"]} == {0, 1}
    assert first["arguments"]["axes"] == {"num_draft_tokens": [1, 2, 3], "order": [3, 4]}
    assert first["model"] is None
    (ratio,) = [
        entry for name, entry in first["timing"]["ratios"].items() if name.endswith(" over none")
    ]
    assert ratio["low"] <= ratio["ratio"] <= ratio["high"]


def test_finished_cells_are_kept(trace, replayed, tmp_path, monkeypatch):
    folder, other = tmp_path / "out", tmp_path / "other.jsonl"
    other.write_bytes(trace.read_bytes())
    replayed = [*replayed, "--trace", other]
    whole = json.loads(run(*replayed, "--json").stdout)
    # Each look at the clock is a second: how long a busy machine takes must not decide.
    clock = types.SimpleNamespace(perf_counter=itertools.count().__next__)
    monkeypatch.setattr("akunu_lab.study.store.time", clock)
    work, done = trace_replays.run_replay, []

    def interrupted(replay, inputs):
        # Of the fifth cell one trace is done.
        if len(done) == 9:
            raise KeyboardInterrupt
        done.append(replay.key)
        return work(replay, inputs)

    monkeypatch.setattr(trace_replays, "run_replay", interrupted)
    result = run(*replayed, "--output", folder)
    assert result.exit_code == 130, result.output
    assert "4 of 9 cells" in result.stdout
    half = BenchResult.read(folder)
    assert not half.finished
    assert len(half.deterministic["cells"]) == 4

    left = []
    monkeypatch.setattr(
        trace_replays, "run_replay", lambda one, inputs: left.append(one) or work(one, inputs)
    )
    result = run(*replayed, "--output", folder)
    assert result.exit_code == 0, result.output
    assert len(left) == 2 * len(whole["deterministic"]["cells"]) - 9
    done = BenchResult.read(folder)
    assert done.finished
    assert done.seconds > half.seconds
    assert json.loads(json.dumps(done.deterministic)) == whole["deterministic"]
    for name in ("fastest", "cells", "recommendation", "heat_map"):
        assert (folder / f"{name}.csv").is_file()
        assert (folder / f"{name}.md").is_file()
    other = run(*replayed, "--output", folder, "--memory", "trace")
    assert other.exit_code == 2
    assert "items of another run: memory was 'session' and is 'trace'" in " ".join(
        other.output.split()
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--drafter", "recycling"], "decode with --live"),
        (["--num-draft-tokens", "8..1"], "is not a range"),
        (["--drafter", "auto", "--heat-map", "window,order"], "give two of what is varied"),
        (["--curve", "m9", "--trace", "{trace}"], "neither a curve nor a file named 'm9'"),
        (["--trace", "{trace}", "--trace", "{trace}", "--curve", "m5-max-70b-4bit"], "given twice"),
        (["--trace", "{trace}", "--live"], "leave out --trace"),
        (["--trace", "{trace}", "--category", "edit"], "leave it out with --trace"),
        (["--live", "--drafter", "draft-model"], "give one with --draft-model"),
        (["--live", "--temp", "1", "--lenience", "0.5"], "is a form of rejection sampling"),
        (["--live", "--no-adjust"], "nothing changes but rejection sampling"),
    ],
)
def test_wrong_options_are_explained(trace, arguments, words):
    result = run(*(argument.format(trace=trace) for argument in arguments))
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


def test_help_imports_nothing_heavy():
    output, imported = printed_and_imported("bench", "sweep", "--help")
    assert "--heat-map" in output
    assert not imported


@pytest.mark.slow
def test_a_model_measures_its_own_costs_and_names_what_fails(tiny_gguf):
    # The tiny model holds 256 tokens: some prompts do not fit.
    result = run(
        tiny_gguf, "--category", "completion", "--category", "edit", "--limit", 4, "--drafter",
        "lookup", "--num-draft-tokens", "2", "--max-tokens", 12, "--json", "--processes", 1,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["failures"]
    assert len(record["failures"]) + len(record["items"]) == 8
    assert record["failures"][0]["item"] in result.stderr
    assert record["costs"]["costs"]["1"] > 0
    assert len(record["model"]["sha256"]) == 64
    assert "auto num_draft_tokens=48" in record["timing"]["cells"]
    assert "auto num_draft_tokens=48" not in record["deterministic"]["cells"]


@contextmanager
def no_bar(_unit):
    yield lambda _done, _total: None


def sweep(engine, drafters, values, *, live, **options):
    """Measure a few prompts by Python, with a curve by name so that nothing is timed."""
    plan = make_plan(
        drafters, values, live=live, has_draft_model=options.pop("draft", False),
        temperature=options.get("temperature", 0.0),
    )  # fmt: skip
    settled = SweepOptions(
        plan=plan, live=live, curve="m5-max-70b-4bit", categories=("completion",), limit=2,
        max_tokens=24, **options,
    )  # fmt: skip
    with ItemStore(None, {}) as store:
        found = run_sweep(settled, store, engine=engine, tokenizer=engine.tokenizer, bar=no_bar)
    assert found.finished
    assert found.traces[RECORDED]  # not all prompts fit into the tiny model's context
    return found


def counts(found):
    """What must be the same live and replayed; the last drafts of a reply may be cut live."""
    return [(o.stats.steps, o.stats.output_tokens) for o in found[RECORDED]]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["tiny_gguf", "default_model"])
def test_live_and_replayed_cells_take_the_same_passes(path, request):
    drafters = ("ngram", "lookup", "counts")
    values = {"num_draft_tokens": (3,), "order": (3,), "draft_length": ("fixed", "entropy")}
    with Engine.load(request.getfixturevalue(path)) as engine:
        live = sweep(engine, drafters, values, live=True)
        replayed = sweep(engine, drafters, values, live=False)
    assert live.traces[RECORDED] == replayed.traces[RECORDED]
    compared = 0
    for cell, found in live.counts.items():
        assert all(outcome.identical for outcome in found[RECORDED])
        if cell.draft_length == "budget" or cell.drafter == "auto":
            continue
        twin = next(
            other
            for other in replayed.counts
            if (other.drafter, other.num_draft_tokens, other.order)
            == (cell.drafter, cell.num_draft_tokens, cell.order)
            and other.draft_length in {None, cell.draft_length}
        )
        assert counts(found) == counts(replayed.counts[twin]), cell.key
        compared += 1
    report = make_report(live)
    kept = deterministic_figures(report)["cells"]
    assert {cell.key for cell in live.counts if cell.draft_length != "budget"} == set(kept)
    assert set(timing_figures(report)["cells"]) == {cell.key for cell in live.counts}
    assert compared == 5  # plain decoding among them


@pytest.mark.slow
def test_methods_of_acceptance_are_decoded_live_and_marked(tiny_gguf):
    result = run(
        tiny_gguf, "--live", "--temp", 1, "--category", "completion", "--limit", 3, "--drafter",
        "counts", "--draft-sampling", "rejection", "--lenience", 1, "--lenience", 0.3,
        "--draft-length", "fixed", "--max-tokens", 16, "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert result.stderr.count("not exact") == 1
    record = json.loads(result.stdout)
    cells = record["deterministic"]["cells"]
    rejection = "counts num_draft_tokens=4 draft_length=fixed draft_sampling=rejection lenience="
    timed = record["timing"]["cells"]
    assert set(cells) <= set(timed)
    assert {key: timed[key]["exactness"] for key in cells} == {
        "none": "stream",
        f"{rejection}1.0": "distribution",
        f"{rejection}0.3 (not exact)": "none",
    }
    strict, lenient = cells[f"{rejection}1.0"], cells[f"{rejection}0.3 (not exact)"]
    assert strict["identical"] is lenient["identical"] is None
    assert strict["drafted"] > 0
    # What the smallest vocabulary accepts by chance, a third of the strictness accepts more often.
    assert lenient["hit_rate"] > strict["hit_rate"]
    assert record["arguments"]["recommendable"] == "identical"
    assert not any("exact" in key for key in [record["timing"]["recommended"] or ""])


@pytest.mark.slow
def test_proposals_and_rejection_of_a_draft_model(default_model):
    draft = default_model.with_name("akunu-tiny-draft.gguf")
    values = {
        "num_draft_tokens": (4,), "num_proposals": (1, 2), "draft_length": ("fixed",),
        "draft_sampling": ("coupled", "rejection"),
    }  # fmt: skip
    with Engine.load(default_model, draft_model=draft) as engine:
        found = sweep(engine, ("draft-model",), values, live=True, draft=True, temperature=0.7)
    by_method = {
        (cell.draft_sampling, cell.num_proposals): outcomes[RECORDED]
        for cell, outcomes in found.counts.items()
        if cell.draft_length == "fixed"
    }
    assert set(by_method) == {(s, k) for s in ("coupled", "rejection") for k in (1, 2)}
    for (sampling, _), outcomes in by_method.items():
        assert all(o.identical for o in outcomes) == (sampling == "coupled")
    # As many tokens in all: with two for a position no more than two in a row are accepted.
    for (_, proposals), outcomes in by_method.items():
        deepest = max(sum(map(bool, o.stats.accepted_per_position)) for o in outcomes)
        assert deepest == {1: 4, 2: 2}[proposals]
    report = make_report(found)
    assert all(cell.draft_sampling != "rejection" for cell in found.eligible())
    assert report.recommendation is None or report.recommendation.take.relaxed == ()


def test_replies_of_one_session_are_in_one_half(tiny_gguf):
    prompts = [
        Prompt(f"{s}-{turn}", "edit", "raw", "a b c", session=f"s{s}", turn=turn)
        for s in range(6)
        for turn in range(2)
    ]
    with Engine.load(tiny_gguf) as engine, ItemStore(None, {}) as store:
        config = GenerationConfig(max_tokens=3, seed=0)
        items = record_replies(engine, prompts, store, config, [])
    halves = {}
    for item in items:
        halves.setdefault(item.session, set()).add(item.half)
    assert len(halves) == 6
    assert all(len(found) == 1 for found in halves.values())
    assert {half for found in halves.values() for half in found} == {0, 1}


def test_the_shipped_prompts_fill_both_halves():
    for limit in (3, None):
        prompts = Prompt.load(limit=limit)
        size = sum(half_of(prompt.session) for prompt in prompts)
        assert 0.25 < size / len(prompts) < 0.75
