"""`akunu bench hit-rate` as a user meets it."""

import json
import sys

import pytest
from bench.bench_fakes import FakeEngine, reply
from click.testing import CliRunner
from command_help import printed_and_imported

from akunu_py.bench.workloads import CATEGORIES, load_prompts
from akunu_py.cli import bench as command
from akunu_py.cli.count_progress import count_progress
from akunu_py.cli.main import cli
from akunu_py.drafting.draft_model import NUM_DRAFT_TOKENS

DRAFTED = {
    "steps": 10, "steps_with_draft": 4, "drafted": 16, "accepted": 12, "tested": 15,
    "output_tokens": 22,
}  # fmt: skip


@pytest.fixture
def fake(monkeypatch):
    """An engine in place of the loaded one; `fake.loaded` is what it was loaded with."""
    engine = FakeEngine(lambda _: (reply(range(22), 4.0), reply(range(22), 2.0, **DRAFTED)))

    def load(model, options):
        engine.loaded = (model, options)
        return engine

    monkeypatch.setattr(command, "load_engine", load)
    return engine


def run(*arguments):
    return CliRunner().invoke(cli, ["bench", "hit-rate", *arguments], terminal_width=120)


def rows(output):
    cells = [line.split() for line in output.splitlines()]
    return {row[0]: row[1:] for row in cells if row and row[0] in (*CATEGORIES, "all")}


def test_the_table(fake):
    result = run("--quick")
    assert result.exit_code == 0, result.output
    table = rows(result.stdout)
    rates = ["40%", "75%", "80%", "2.20", "5.5", "11.0", "2.00x"]
    for category in CATEGORIES:
        assert table[category] == [*rates, "3/3"]
    assert table["all"] == [*rates, f"{3 * len(CATEGORIES)}/{3 * len(CATEGORIES)}"]
    assert "fake [bold] (model.gguf), dense weights" in result.stdout
    first, second, *table = result.stdout.splitlines()
    assert all(len(line) < 80 for line in table)
    assert "…" not in result.stdout
    assert result.stderr == ""  # no bar where nobody watches


def test_rates_that_do_not_exist_are_dashes(fake):
    fake.script = lambda _: (reply([1], 0.0), reply([1], 0.0, steps=1, output_tokens=1))
    result = run("--limit", "1", "--category", "edit")
    assert rows(result.stdout)["edit"] == ["0%", "-", "-", "1.00", "-", "-", "-", "1/1"]


def test_differences_are_listed(fake):
    fake.script = lambda _: (reply([1, 2, 3], 1.0), reply([1, 2, 4], 1.0, steps=3, output_tokens=3))
    fake._logits = (0.0, 1.0, 1.25)
    result = run("--limit", "1", "--category", "edit")
    assert rows(result.stdout)["all"][-1] == "0/1"
    first = load_prompts(["edit"])[0].id
    assert f"{first}: differs from generated token 2 on" in result.stdout
    assert "0.25 apart" in result.stdout


def test_json_is_one_line(fake):
    result = run(
        "model.gguf", "--json", "--category", "edit", "--category", "config", "--kv-bits", "8"
    )
    assert result.stderr == ""
    (line,) = result.stdout.splitlines()
    record = json.loads(line)
    assert set(record["categories"]) == {"edit", "config"}
    assert record["total"]["num_prompts"] == len(load_prompts(["edit", "config"]))
    assert record["total"]["speedup"] == 2
    assert record["kv_bits"] == 8
    model, options = fake.loaded
    assert model == "model.gguf"
    assert (options["weights"], options["context"], options["kv_bits"]) == ("auto", None, 8)
    assert fake.calls[-1] == "close"


def test_options_reach_the_measurement(fake):
    result = run(
        "--json", "--limit", "2", "--drafter", "ngram-window", "--num-draft-tokens", "6",
        "--max-tokens", "33", "--temperature", "0.5", "--seed", "9", "--draft-budget", "auto",
    )  # fmt: skip
    assert json.loads(result.stdout)["config"] == {
        "drafter": "ngram-window", "num_draft_tokens": 6, "draft_budget": "auto", "max_tokens": 33,
        "temperature": 0.5, "seed": 9,
    }  # fmt: skip
    assert json.loads(result.stdout)["total"]["num_prompts"] == 2 * len(CATEGORIES)


def test_defaults(fake):
    assert json.loads(run("--json", "--quick").stdout)["config"] == {
        "drafter": "ngram", "num_draft_tokens": 4, "draft_budget": "always", "max_tokens": 128,
        "temperature": 0.0, "seed": 0,
    }  # fmt: skip


def test_the_number_of_tokens_is_the_drafters_own_where_nobody_says(fake):
    config = json.loads(run("--json", "--limit", "1", "--drafter", "lookup").stdout)["config"]
    assert (config["drafter"], config["num_draft_tokens"]) == ("lookup", 10)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--drafter", "magic"], "no drafter 'magic'; choose from auto, ngram, ngram-window"),
        (["--max-tokens", "0"], "max_tokens is 0"),
        (["--num-draft-tokens", "65"], "give at most 64"),
        (["--temperature", "nan"], "temperature is nan"),
        (["--seed", "-1"], "seed is -1"),
        (["--category", "poems"], "'poems' is not one of"),
        (["--limit", "0"], "0 is not in the range"),
        (["--quick", "--limit", "2"], "either --quick or --limit"),
    ],
)
def test_wrong_options_are_explained_before_a_model_is_loaded(fake, arguments, words):
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
    assert not hasattr(fake, "loaded")


def test_a_draft_model_is_loaded_with_the_model(fake):
    result = run(
        "--json", "--limit", "1", "--drafter", "draft-model", "--draft-model", "small.gguf"
    )
    config = json.loads(result.stdout)["config"]
    assert (config["drafter"], config["num_draft_tokens"]) == ("draft-model", NUM_DRAFT_TOKENS)
    assert str(fake.loaded[1]["draft_model"]) == "small.gguf"


def test_a_prompt_beyond_the_context_is_explained(fake):
    fake.context = 50
    result = run("--quick")
    assert result.exit_code == 1
    assert "load the model with a larger context" in result.stderr
    assert fake.calls == ["close"]


def test_a_terminal_gets_a_bar_on_stderr(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with count_progress("replies", "warming up") as progress:
        progress(0, 6)
        progress(5, 6)
    shown = capsys.readouterr()
    assert "warming up" in shown.err
    assert "5/6 replies" in shown.err
    assert shown.out == ""


def test_help_imports_nothing_heavy():
    output, imported = printed_and_imported("bench", "hit-rate", "--help")
    assert "--num-draft-tokens" in output
    assert not imported
