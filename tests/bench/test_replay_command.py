"""`akunu bench replay` as a user meets it."""

import json

import pytest
from click.testing import CliRunner
from command_help import printed_and_imported

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


def test_the_tables(trace, tiny_gguf):
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
    assert [row[:2] for row in rows] == [["ngram", "4"], ["sam", "40"]] * 3
    assert all(len(row) == 11 for row in rows)
    assert "ngram: " in shown
    assert "against sam@40, the best baseline" in shown
    assert "recycling: not replayable; it learns from the target's logits" in shown
    assert result.stderr == ""  # no bar where nobody watches


def test_json_is_one_line(trace, tiny_gguf):
    result = run(
        trace, "--tokenizer", tiny_gguf, "--drafter", "auto", "--drafter", "hf-lookup-3",
        "--curve", "gentle-slope", "--curve", "m2-pro-moe-26b-a4b", "--tune", "--memory", "session",
        "--by", "trace", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    record = json.loads(line)
    assert (record["tune"], record["memory"]) == (True, "session")
    assert list(record["curves"]) == ["gentle-slope", "m2-pro-moe-26b-a4b"]
    gentle = record["curves"]["gentle-slope"]
    assert set(gentle["categories"]) == {"chat", "edit"}
    assert set(gentle["traces"]) == {"edits"}
    figures = gentle["total"]["auto"]
    assert set(figures) == {
        "limit", "items", "tokens_per_pass", "tokens_per_pass_interval", "fire_rate", "hit_rate",
        "alpha", "mean_draft", "speed", "speed_interval", "us_a_pass",
    }  # fmt: skip
    low, high = figures["speed_interval"]
    assert 1 < low <= figures["speed"] <= high
    assert gentle["best_baseline"] == "hf-lookup-3"
    assert set(gentle["against_best"]) == {"auto"}


def test_without_a_tokenizer_the_shipped_models_counts(trace):
    result = run(trace, "--drafter", "ngram", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["curves"]["m5-max-70b-4bit"]["total"]["ngram"]["items"] == 8


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--drafter", "magic"], "no drafter 'magic'"),
        (["--curve", "m9"], "no curve and no file 'm9'"),
        (["--tokenizer", "none.gguf"], "there is no none.gguf"),
        (["--memory", "ever"], "'ever' is not one of"),
    ],
)
def test_wrong_options_are_explained(trace, arguments, words):
    result = run(trace, *arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


def test_wrong_traces_are_explained(trace, tiny_gguf):
    result = run()
    assert result.exit_code == 2
    assert "Missing argument 'TRACES...'" in result.output
    result = run(trace, trace)
    assert result.exit_code == 2
    assert "is given twice" in result.output
    trace.write_text('{"id": "1", "category": "c", "prompt": "p", "output": 5}\n')
    result = run(trace)
    assert result.exit_code == 2
    assert "edits.jsonl, line 1, field output: 5 is no text" in " ".join(result.output.split())
    trace.write_text('{"id": "1", "category": "c", "prompt": "p", "output": "o"}\n')
    result = run(trace, "--tokenizer", tiny_gguf, "--tune")
    assert result.exit_code == 2
    assert "--tune finds no session to" in result.output


def test_help_imports_nothing_heavy():
    output, imported = printed_and_imported("bench", "replay", "--help")
    assert "--tune" in output
    assert not imported


def test_the_group_lists_the_replay():
    result = CliRunner().invoke(cli, ["bench", "--help"])
    assert "hit-rate" in result.output
    assert "replay" in result.output
