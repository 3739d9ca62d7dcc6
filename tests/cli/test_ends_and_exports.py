"""What replies, help, results and exported chats say of how they ended and were made."""

import json
import re

import pytest
from akunu_runs import ENDLESS, run
from click.testing import CliRunner
from gguf_files import write_tiny_llama

from akunu_py.bench.result_file import BenchResult
from akunu_py.bench.rows import parse, typed
from akunu_py.cli.command_settings import leaves
from akunu_py.cli.main import cli


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--max-tokens", "3"), "the reply ends here: it has 3 tokens, as --max-tokens says"),
        (("--context", "40"), "the reply ends here: the context of 40 tokens is full"),
        (("--max-tokens", "9", "--json"), "it has 9 tokens"),
        (("--max-tokens", "3", "--quiet"), None),
    ],
)
def test_a_reply_that_was_cut_says_so(tiny_gguf, options, words):
    result = run("generate", tiny_gguf, "--raw", "-p", "hello", *ENDLESS, *options, code=0)
    assert ("the reply ends here" in result.stderr) == (words is not None)
    assert (words or "") in result.stderr
    assert "ends here" not in result.stdout


def test_cut_replies_of_a_file_are_counted(tiny_gguf, tmp_path):
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    result = run(
        "generate", tiny_gguf, "--raw", "--prompts", prompts, "--output", tmp_path / "r.jsonl",
        "--max-tokens", "2", *ENDLESS, code=0,
    )  # fmt: skip
    assert "2 of 2 replies are in" in result.stderr
    assert "2 ended at --max-tokens or a full context" in result.stderr


def test_all_help_has_every_command_and_every_option(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = CliRunner().invoke(cli, ["--help-all"], prog_name="akunu").output
    context = cli.make_context("akunu", ["--help"], resilient_parsing=True)
    commands = dict(leaves(cli, context))
    assert len(commands) > 25
    for words, command in commands.items():
        assert f"Usage: akunu {' '.join(words)} " in text
        for parameter in command.params:
            if not getattr(parameter, "hidden", True):
                assert parameter.opts[0] in text
    assert "--lenience" in text
    assert "--lenience" not in run("generate", "--help").output


def test_the_help_of_the_chat_fits_a_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(cli, ["chat", "--help"], terminal_width=80)
    assert len(result.output.splitlines()) <= 80


def test_output_may_be_a_file(tmp_path):
    model, file = write_tiny_llama(tmp_path / "m.gguf", context=2048), tmp_path / "x.json"
    measure = (
        "bench", "hit-rate", model, "--limit", "1", "--category", "edit",
        "--max-tokens", "8", "--output",
    )  # fmt: skip
    for _ in range(2):  # a result of an earlier run is replaced
        run(*measure, file, code=0)
        typed(parse(file.read_bytes(), "x.json"), BenchResult, "x.json")
    other = tmp_path / "notes.json"
    other.write_text("{}")
    assert "is not a result" in run(*measure, other, code=2).output
    assert other.read_text() == "{}"
    assert "does not exist" in run(*measure, tmp_path / "no" / "x.json", code=2).output
    (tmp_path / "text").write_text("mine")
    assert (
        "give a folder, or a name that ends in .json"
        in run(*measure, tmp_path / "text", code=2).output
    )


def test_exported_chats_say_what_made_them(tiny_gguf, tmp_path):
    path = tmp_path / "c.md"
    said = f"hello\n/set top-k 7\n/export {path}\n"
    own = ("--temperature", "0.5", "--seed", "3", "--max-tokens", "4")
    run("chat", tiny_gguf, *own, *ENDLESS, input=said, code=0)
    text = path.read_text()
    assert re.search(
        r"With \S.*\.\n\nExported on \d{4}-\d\d-\d\d \d\d:\d\d [+-]\d{4}; settings: temperature 0\.5, .*"
        r"top_k 7, .*max_tokens 4.*\.\n\n## User\n\nhello\n\n## Assistant\n",
        text,
    )


def test_seeds_are_exact_in_every_reader_of_json(engine):
    for _ in range(20):
        seed = engine.generate([1, 2], max_tokens=1).seed
        assert int(float(seed)) == seed
        assert 0 <= seed < 2**53
        assert json.loads(json.dumps(seed)) == seed
