"""`akunu bench replay` as a user meets it."""

import itertools
import json
import re
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from command_help import printed_and_imported

from akunu_lab.replay import runner, trace_replays
from akunu_py.bench.result_file import BenchResult
from akunu_py.cli.main import cli

TEXT = "the draft is the token of the model and the draft is the token of the world "


def run(*arguments):
    return CliRunner().invoke(
        cli, ["bench", "replay", "--processes", "1", *map(str, arguments)], terminal_width=140
    )


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "edits.jsonl"
    records = [
        {
            "id": f"{number}", "category": "edit" if number % 2 else "chat",
            "prompt": TEXT * 2, "output": TEXT * (1 + number % 3),
        }
        for number in range(8)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_the_tables(trace, tiny_gguf, monkeypatch):
    # Times of any length would make the tables wider.
    now = itertools.count(step=50e-6)
    monkeypatch.setattr(runner, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    result = run(
        trace, "--tokenizer", tiny_gguf, "--drafter", "ngram", "--drafter", "sam",
        "--drafter", "recycling",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    shown = result.stdout
    assert "m5-max-70b-4bit: all items; drafters remember across the items of a trace" in shown
    assert "…" not in shown
    blocks = [line for line in shown.splitlines() if line.endswith(" items")]
    assert blocks == ["chat, 4 items", "edit, 4 items", "all, 8 items"]
    assert all(len(line) <= 80 for line in shown.splitlines() if line.startswith(("─", "drafter ")))
    rows = [line.split() for line in shown.splitlines() if line.startswith(("ngram ", "sam "))]
    # The key figure and its interval stand beside the name.
    assert [[row[0], row[3]] for row in rows] == [["ngram", "4"], ["sam", "40"]] * 3
    assert all(re.fullmatch(r"\d\.\d{3}", row[1]) for row in rows)
    assert all(len(row) == 11 for row in rows)
    assert "ngram: " in shown
    assert "against sam@40, the best baseline" in shown
    assert "recycling: not replayable; it learns from the target's logits" in shown
    assert result.stderr == ""  # no bar where nobody watches


def test_an_implausible_curve_is_named(trace, tiny_gguf, tmp_path):
    curves = {"mine": {"points": {"1": 1.0, "5": 1.46, "33": 1.2}}, "fine": {"points": {"1": 1.0}}}
    (tmp_path / "curves.json").write_text(json.dumps({"curves": curves}))
    result = run(
        trace, "--tokenizer", tiny_gguf, "--drafter", "ngram", "--curve", tmp_path / "curves.json",
        "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert result.stderr == (
        "implausible costs of passes: mine: C(33) = 1.20 is below C(5) = 1.46; a pass over more "
        "rows should not cost less\n"
    )
    assert len(BenchResult.parse(result.stdout).doubts) == 1


def test_json_is_one_line(trace, tiny_gguf):
    result = run(
        trace, "--tokenizer", tiny_gguf, "--drafter", "auto", "--drafter", "hf-lookup-3",
        "--curve", "gentle-slope", "--curve", "m2-pro-moe-26b-a4b", "--tune", "--memory", "session",
        "--by", "trace", "--quick", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    result = BenchResult.parse(line)
    chosen = ("tune", "memory", "limit")
    assert [result.arguments[name] for name in chosen] == [True, "session", 20]
    curves = result.deterministic["curves"]
    assert list(curves) == ["gentle-slope", "m2-pro-moe-26b-a4b"]
    gentle = curves["gentle-slope"]
    assert set(gentle["categories"]) == {"chat", "edit"}
    assert set(gentle["traces"]) == {"edits"}
    figures = gentle["total"]["auto"]
    assert set(figures) == {
        "limit", "items", "tokens_per_pass", "fire_rate", "hit_rate", "alpha", "mean_draft",
        "speed",
    }  # fmt: skip
    speed = figures["speed"]
    assert 1 < speed["low"] <= speed["ratio"] <= speed["high"]
    assert result.timing["us_a_pass"]["gentle-slope"]["auto"] > 0
    assert gentle["best_baseline"] == "hf-lookup-3"
    assert set(gentle["against_best"]) == {"auto"}


def total(line):
    return json.loads(line)["deterministic"]["curves"]["m5-max-70b-4bit"]["total"]


def test_files_are_written_and_figures_are_the_same_again(trace, tiny_gguf, tmp_path):
    options = [
        trace, "--tokenizer", tiny_gguf, "--drafter", "ngram", "--drafter", "auto", "--limit", 4,
    ]  # fmt: skip
    one = run(*options, "--json", "--output", tmp_path / "out")
    assert one.exit_code == 0, one.output
    figures = json.loads(one.stdout)["deterministic"]
    assert figures == json.loads(run(*options, "--json").stdout)["deterministic"]
    assert set(figures["hashes"]) == {"trace edits", "curve m5-max-70b-4bit"}
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        "result.json", "items.jsonl", "m5-max-70b-4bit-all.csv", "m5-max-70b-4bit-edit.md",
    }  # fmt: skip
    assert total(one.stdout)["ngram"]["items"] == 4


def test_an_interrupted_replay_goes_on(trace, tiny_gguf, tmp_path, monkeypatch):
    short = trace.with_name("short.jsonl")
    short.write_text("".join(trace.read_text().splitlines(keepends=True)[:2]))
    options = [
        short, trace, "--tokenizer", tiny_gguf, "--drafter", "ngram", "--drafter", "sam", "--json",
    ]  # fmt: skip
    whole = json.loads(run(*options).stdout)
    done = []
    run_replay = trace_replays.run_replay

    def interrupted(replay, inputs):
        done.append((replay.cells[0].drafter, replay.trace))
        if len(done) == 4:
            raise KeyboardInterrupt
        return run_replay(replay, inputs)

    monkeypatch.setattr(trace_replays, "run_replay", interrupted)
    cut = run(*options, "--output", tmp_path)
    assert cut.exit_code == 130
    assert set(total(cut.stdout)) == {"ngram"}
    assert "the same command goes on" in cut.stderr
    rest = run(*options, "--output", tmp_path)
    # The longest trace first.
    order = [(name, of) for of in ("edits", "short") for name in ("ngram", "sam")]
    assert done == [*order, order[-1]]
    assert json.loads(rest.stdout)["deterministic"] == whole["deterministic"]
    trace.write_text(trace.read_text().splitlines()[0] + "\n")
    other = run(*options, "--output", tmp_path)
    assert other.exit_code == 2
    assert "hashes.trace edits was" in " ".join(other.output.split())


def test_an_interrupt_before_anything_is_done(trace, tiny_gguf, monkeypatch):
    def interrupted(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(trace_replays, "run_replay", interrupted)
    result = run(trace, "--tokenizer", tiny_gguf, "--drafter", "ngram")
    assert result.exit_code == 130
    assert "unfinished: interrupted after 0 items" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--drafter", "magic"], "no drafter named 'magic'"),
        (["--curve", "m9"], "neither a curve nor a file named 'm9'"),
        (["--tokenizer", "none.gguf"], "there is no model named none.gguf"),
        (["--memory", "ever"], "'ever' is not one of"),
    ],
)
def test_wrong_options_are_explained(trace, arguments, words):
    result = run(trace, *arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


def test_a_tokenizer_by_another_name(trace, tiny_gguf, monkeypatch):
    """As models are named elsewhere: here a file in one of the user's model folders."""
    monkeypatch.setenv("AKUNU_MODEL_FOLDERS", str(tiny_gguf.parent))
    options = ["--drafter", "ngram", "--json"]
    named = run(trace, "--tokenizer", tiny_gguf.stem, *options)
    assert named.exit_code == 0, named.output
    by_path = run(trace, "--tokenizer", tiny_gguf, *options)
    figures, same = (json.loads(found.stdout)["deterministic"] for found in (named, by_path))
    assert figures == same
    # Without one that of the model that ships.
    assert figures != json.loads(run(trace, *options).stdout)["deterministic"]


def test_wrong_traces_are_explained(trace, tiny_gguf):
    result = run(trace, trace)
    assert result.exit_code == 2
    assert "is given twice" in result.output
    trace.write_text('{"id": "1", "category": "c", "prompt": "p", "output": 5}\n')
    result = run(trace)
    assert result.exit_code == 2
    assert "edits.jsonl, line 1: field output: Expected str, got int" in " ".join(
        result.output.split()
    )
    trace.write_text('{"id": "1", "category": "c", "prompt": "p", "output": "o"}\n')
    result = run(trace, "--tokenizer", tiny_gguf, "--tune")
    assert result.exit_code == 2
    assert "--tune finds no session to" in result.output


def test_malformed_lines_are_named_and_the_others_are_replayed(trace, tiny_gguf):
    options = ["--tokenizer", tiny_gguf, "--drafter", "ngram", "--json"]
    whole = run(trace, *options)
    text = trace.read_text()
    trace.write_text("{\n" + text + '{"id": "9"}\n')
    result = run(trace, *options)
    assert result.exit_code == 0, result.output
    assert total(result.stdout) == total(whole.stdout)
    first, second = result.stderr.splitlines()
    assert first.startswith(f"failed: {trace}, line 1: not JSON: ")
    assert second == f"failed: {trace}, line 10: Object missing required field category"
    assert [one["item"] for one in json.loads(result.stdout)["failures"]] == [
        f"{trace}, line 1", f"{trace}, line 10",
    ]  # fmt: skip


def test_a_trace_that_no_tokenizer_can_encode(trace, tiny_gguf, monkeypatch):
    from akunu_lab.replay import tokens

    monkeypatch.setattr(tokens, "_inner", lambda _ids, _empty: [])
    result = run(trace, "--tokenizer", tiny_gguf)
    assert result.exit_code == 2
    assert "can encode no item of edits" in " ".join(result.output.split())


def test_help_imports_nothing_heavy():
    output, imported = printed_and_imported("bench", "replay", "--help")
    assert "--tune" in output
    assert not imported


def test_replies_at_once(trace, tiny_gguf):
    result = run(trace, "--tokenizer", tiny_gguf, "--streams", "2,3", "--by", "trace")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith("edits ")]
    assert [row[:2] for row in rows] == [["edits", "2"], ["edits", "3"]]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--drafter", "ngram"), "leave out --drafter"),
        (("--tune",), "leave out --tune"),
        (("--streams", "1,2"), "2 replies at once and more"),
    ],
)
def test_what_replies_at_once_do_not_go_with(trace, tiny_gguf, options, reason):
    result = run(trace, "--tokenizer", tiny_gguf, "--streams", "2", *options)
    assert result.exit_code == 2
    assert reason in result.output
