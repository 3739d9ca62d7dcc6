"""`akunu bench hit-rate` as a user meets it."""

import io
import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from bench.bench_fakes import CLOCK, FakeEngine, reply
from bench.result_values import result
from click.testing import CliRunner
from command_help import printed_and_imported
from rich.console import Console

from akunu_py.bench.result_file import BenchResult
from akunu_py.bench.tables import Column, Table
from akunu_py.bench.workloads import CATEGORIES, Prompt
from akunu_py.cli.bench import bench
from akunu_py.cli.bench_tables import rich_table
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

    monkeypatch.setattr("akunu_py.cli.measuring.load_engine", load)
    CLOCK.replace(monkeypatch)
    return engine


def run(*arguments):
    return CliRunner().invoke(cli, ["bench", "hit-rate", *arguments], terminal_width=120)


def rows(output):
    cells = [line.split() for line in output.splitlines()]
    return {row[0]: row[1:] for row in cells if row and row[0] in (*CATEGORIES, "all")}


def measuring(record):
    names = ("drafter", "num_draft_tokens", "draft_budget", "max_tokens", "temperature", "seed")
    return {name: record["arguments"][name] for name in names}


def test_the_table(fake):
    result = run("--quick")
    assert result.exit_code == 0, result.output
    table = rows(result.stdout)
    # 21 tokens behind the first in 4 s and in 2 s, with 0.1 s of prefill in both.
    rates = ["5.3", "10.5", "40%", "75%", "2.20"]
    few = ["-", "not", "enough", "items"]
    for category in CATEGORIES:
        assert table[category] == [*few, *rates, "0%", "2/2"]
    total = f"{2 * len(CATEGORIES)}/{2 * len(CATEGORIES)}"
    assert table["all"] == ["2.00x", "2.00-2.00", *rates, "0%", total]
    shown = " ".join(result.stdout.split())
    assert "Speedup of all: 2.00x, 95 % interval 2.00x to 2.00x; prefill included 1.95x" in shown
    assert "fake [bold] (model.gguf), dense weights" in result.stdout
    assert "…" not in result.stdout
    assert result.stderr == "akunu: measuring passes\n"  # no bar where nobody watches


def test_the_table_fits_a_terminal(fake, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("--quick").stdout.splitlines()
    last = next(number for number, line in enumerate(lines) if line.startswith("all "))
    assert all(len(line) < 80 for line in lines[2 : last + 1])
    assert not any("…" in line for line in lines)


def test_rates_that_do_not_exist_are_dashes(fake):
    fake.script = lambda _: (reply([1], 0.0), reply([1], 0.0, steps=1, output_tokens=1))
    result = run("--limit", "1", "--category", "edit")
    assert rows(result.stdout)["edit"] == [
        "-", "not", "enough", "items", "-", "-", "0%", "-", "1.00", "0%", "1/1",
    ]  # fmt: skip
    assert "Speedup of all: not enough items; an interval takes 5 sessions." in result.stdout


def test_differences_are_listed(fake):
    fake.script = lambda _: (reply([1, 2, 3], 1.0), reply([1, 2, 4], 1.0, steps=3, output_tokens=3))
    fake.next_logits = (0.0, 1.0, 1.25)
    result = run("--limit", "1", "--category", "edit")
    assert rows(result.stdout)["all"][-1] == "0/1"
    first = Prompt.load(["edit"])[0].id
    assert f"{first}: differs from generated token 2 on" in result.stdout
    assert "0.25 apart" in result.stdout


def test_json_is_one_line(fake):
    result = run(
        "model.gguf", "--json", "--category", "edit", "--category", "config", "--kv-bits", "8"
    )
    assert result.stderr == "akunu: measuring passes\n"
    (line,) = result.stdout.splitlines()
    result = BenchResult.parse(json.dumps(json.loads(line)))
    assert set(result.deterministic["categories"]) == {"edit", "config"}
    assert result.deterministic["total"]["prompts"] == len(Prompt.load(["edit", "config"]))
    assert result.timing["ratios"]["decode"]["ratio"] == pytest.approx(2)
    assert result.arguments["kv_bits"] == 8
    assert result.arguments["category"] == ["edit", "config"]
    model, options = fake.loaded
    assert model == "model.gguf"
    assert (options.weights, options.context, options.kv_bits) == ("auto", None, 8)
    assert fake.calls[-1] == "close"


def test_options_reach_the_measurement(fake):
    result = run(
        "--json", "--limit", "2", "--drafter", "ngram-window", "--num-draft-tokens", "6",
        "--max-tokens", "33", "--temperature", "0.5", "--seed", "9", "--draft-budget", "auto",
    )  # fmt: skip
    record = json.loads(result.stdout)
    assert measuring(record) == {
        "drafter": "ngram-window", "num_draft_tokens": 6, "draft_budget": "auto", "max_tokens": 33,
        "temperature": 0.5, "seed": 9,
    }  # fmt: skip
    assert record["arguments"]["limit"] == 2
    assert record["deterministic"]["total"]["prompts"] == 2 * len(CATEGORIES)


@pytest.mark.parametrize(
    ("columns", "size", "between"),
    [(12, 4, 2), (10, 6, 2), (10, 7, 1)],  # 70, 78 and 88 columns with two spaces between
)
def test_tables_are_drawn_closer_where_they_would_be_cut(columns, size, between):
    table = Table(
        "t", "", tuple(Column(f"c{n}", f"{n}") for n in range(columns)),
        (("x" * size,) * columns,),
    )  # fmt: skip
    console = Console(width=80, file=io.StringIO())
    console.print(rich_table(table, console))
    assert (" " * between).join(["x" * size] * columns) in console.file.getvalue()


@pytest.mark.lab
def test_the_command_of_a_result_gives_the_same_options(fake, tmp_path):
    from akunu_lab.commands.report import command_text

    words = ["--limit", "1", "--lenience", "0.5", "--no-adjust", "--draft-sampling", "rejection"]
    run(*words, "--temperature", "0.7", "--output", str(tmp_path))
    first, fake.drafting = fake.drafting, None
    program, *again = shlex.split(command_text(BenchResult.read(tmp_path), bench))
    assert program == "akunu"
    assert CliRunner().invoke(cli, again).exit_code == 0
    assert fake.drafting == first
    assert (first.verifier.lenience, first.verifier.adjust) == (0.5, False)


def test_defaults(fake):
    assert measuring(json.loads(run("--json", "--limit", "1").stdout)) == {
        "drafter": "auto", "num_draft_tokens": 48, "draft_budget": "auto", "max_tokens": 128,
        "temperature": 0.0, "seed": 0,
    }  # fmt: skip


def test_the_number_of_tokens_is_the_drafters_own_where_nobody_says(fake):
    found = measuring(json.loads(run("--json", "--limit", "1", "--drafter", "lookup").stdout))
    assert (found["drafter"], found["num_draft_tokens"]) == ("lookup", 10)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--drafter", "magic"], "no drafter named 'magic'; choose from auto, ngram, ngram-window"),
        (["--max-tokens", "0"], "--max-tokens is 0"),
        (["--num-draft-tokens", "65"], "--num-draft-tokens is 65; give at most 64"),
        (["--temperature", "nan"], "--temperature is nan"),
        (["--seed", "-1"], "--seed is -1"),
        (["--category", "poems"], "no category named 'poems'; choose from completion"),
        (["--limit", "0"], "0 is too small; give 1 or more"),
        (["--ngram-order", "3"], "'auto' has no --ngram-order; leave it out, or choose from ngram"),
        (["--drafter", "lookup", "--ngram-order", "1"], "--ngram-order is 1; give 2 or more"),
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
    found = measuring(json.loads(result.stdout))
    assert (found["drafter"], found["num_draft_tokens"]) == ("draft-model", NUM_DRAFT_TOKENS)
    assert str(fake.loaded[1].draft_model) == "small.gguf"


def test_prompts_beyond_the_context_are_named_and_the_others_answered(fake):
    prompts = Prompt.load(["edit"], limit=3)
    sizes = [len(fake.tokenizer.encode_chat(prompt.messages)) for prompt in prompts]
    fake.context = max(sizes)
    longest = prompts[sizes.index(max(sizes))].id
    result = run("--limit", "3", "--category", "edit")
    assert result.exit_code == 0, result.output
    assert f"failed: {longest}: " in result.stderr
    assert rows(result.stdout)["edit"][-1] == "2/2"


def test_where_nothing_can_be_answered_the_command_fails(fake):
    fake.context = 20
    result = run("--quick", "--json")
    assert result.exit_code == 1
    assert "load the model with a larger context" in result.stderr
    assert len(json.loads(result.stdout)["failures"]) == 2 * len(CATEGORIES)
    assert fake.calls == ["close"]


def test_a_folder_gets_the_result(fake, tmp_path):
    folder = tmp_path / "new" / "out"
    for _ in range(2):  # the result of an earlier run is replaced
        result = run("--limit", "1", "--category", "edit", "--output", str(folder))
        assert result.exit_code == 0, result.output
    assert [path.name for path in folder.iterdir()] == ["result.json"]
    assert BenchResult.read(folder).command == "hit-rate"


def test_a_result_of_another_command_is_not_written_over(fake, tmp_path):
    result(command="speed").write(tmp_path / "result.json")
    before = (tmp_path / "result.json").read_bytes()
    other = run("--output", str(tmp_path))
    assert other.exit_code == 2
    assert "is a result of `akunu bench speed`, and this is `akunu bench hit-rate`" in " ".join(
        other.output.split()
    )
    assert (tmp_path / "result.json").read_bytes() == before
    assert not hasattr(fake, "loaded")


def test_what_cannot_be_written_is_shown_all_the_same(fake, tmp_path):
    (tmp_path / "result.json").mkdir()
    found = run("--limit", "1", "--category", "edit", "--output", str(tmp_path))
    assert found.exit_code == 2
    assert "cannot write" in found.stderr
    assert rows(found.stdout)["edit"][-1] == "1/1"


def test_an_interrupt_keeps_what_was_finished(fake, tmp_path):
    script, count = fake.script, iter(range(100))

    def interrupted(text):
        # Two replies of the warm-up, two of the first prompt.
        if next(count) == 4:
            raise KeyboardInterrupt
        return script(text)

    fake.script = interrupted
    arguments = ("--limit", "3", "--category", "edit", "--output", str(tmp_path))
    result = run(*arguments)
    assert result.exit_code == 130
    assert "unfinished: interrupted after 1 item\n" in result.stderr
    assert "Unfinished" in result.stdout
    assert not BenchResult.read(tmp_path).finished
    assert run(*arguments).exit_code == 0
    assert BenchResult.read(tmp_path).deterministic["total"]["prompts"] == 3


def test_prompts_of_a_file(fake, tmp_path):
    path = tmp_path / "mine.jsonl"
    lines = [
        {"id": "a", "category": "mine", "kind": "raw", "prompt": "one"},
        {"id": "b", "category": "other", "kind": "raw", "prompt": "two"},
    ]
    path.write_text("\n".join([*map(json.dumps, lines), "oops"]) + "\n")
    result = run("--prompts", str(path), "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert set(record["deterministic"]["categories"]) == {"mine", "other"}
    (failure,) = record["failures"]
    assert "3" in failure["item"]
    chosen = json.loads(run("--prompts", str(path), "--json", "--category", "mine").stdout)
    assert [item["id"] for item in chosen["items"]] == ["a"]
    wrong = run("--prompts", str(path), "--category", "edit")
    assert wrong.exit_code == 2
    assert "there are mine, other" in wrong.output


@pytest.mark.slow
def test_ctrl_c_ends_a_real_run_with_its_finished_items(tmp_path):
    script = Path(sys.executable).with_name("akunu")
    command = [script, "bench", "hit-rate", "--output", str(tmp_path), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        # A line every ten seconds says how many replies there are.
        next(line for line in process.stderr if re.search(r" ([4-9]|\d\d+)/\d+ replies", line))
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    assert "unfinished: interrupted after" in stderr
    record = json.loads(stdout)
    assert record["finished"] is False
    assert record["items"] == BenchResult.read(tmp_path).plain()["items"] != []


@pytest.fixture
def clock(progress_clock):
    """A clock for progress that stands still unless `clock.now` is moved on."""
    found = SimpleNamespace(now=100.0)
    progress_clock.now = lambda: found.now
    return found


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


def test_a_file_gets_a_line_now_and_then_on_stderr(fake, clock):
    """As observed: nothing for minutes where output went to a file."""
    script = fake.script

    def slow(text):
        clock.now += 4
        return script(text)

    fake.script = slow
    words = ("--limit", "3", "--category", "edit")
    result = run(*words)
    assert result.exit_code == 0, result.output
    # Two replies of the warm-up, and six: a line every ten seconds at most.
    assert result.stderr.splitlines() == [
        "akunu: measuring passes", "akunu: 1/6 replies", "akunu: 4/6 replies",
    ]  # fmt: skip
    assert "replies" not in result.stdout.splitlines()[0]
    quiet = CliRunner().invoke(cli, ["--quiet", "bench", "hit-rate", *words])
    assert quiet.exit_code == 0
    assert quiet.stderr == ""


def test_help_imports_nothing_heavy():
    output, imported = printed_and_imported("bench", "hit-rate", "--help")
    assert "--num-draft-tokens" in output
    assert not imported


def test_a_model_given_twice_and_a_number_of_threads(fake):
    result = run("one.gguf", "--model", "two.gguf")
    assert result.exit_code == 2
    assert "the model is given twice, as one.gguf and as two.gguf" in result.output
    result = run("-t", "8")
    assert result.exit_code == 2
    assert "-t 8 would be a temperature" in result.output
    assert run("--temp", "8", "--limit", "1").exit_code == 0
