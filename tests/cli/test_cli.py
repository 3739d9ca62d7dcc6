"""The commands as a user meets them: text, JSON, pipes, wrong input, no traceback; the log."""

import json
import logging
import shlex
import subprocess
import sys

import click
import pytest
from akunu_runs import AKUNU, ENDLESS, run
from command_help import printed_and_imported
from gguf_files import write_tiny_llama
from terminal_screen import TerminalScreen

from akunu_py import Engine, __version__
from akunu_py.cli.main import cli
from akunu_py.cli.terminal import printable
from akunu_py.cli.verbosity import set_up_logging


def process(*arguments, **options):
    options = {"stdin": subprocess.DEVNULL, "timeout": 120, **options}
    return subprocess.run(
        [*AKUNU, *map(str, arguments)], capture_output=True, check=False, **options
    )


def test_version_and_help():
    assert run("--version").stdout.strip() == f"akunu, version {__version__}"
    for command in ((), ("chat",), ("generate",), ("bench",)):
        result = run(*command, "--help")
        assert result.exit_code == 0
        assert "Usage: " in result.output


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["generate", "--help"]])
def test_help_imports_nothing_heavy(arguments):
    """The reason why these answer at once; the time itself is in docs/benchmarks.md."""
    output, imported = printed_and_imported(*arguments)
    assert output.startswith(("akunu, version", "Usage: "))
    assert not imported


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_what_answers_at_once_imports_little(argument):
    """Each of these would be 3 to 20 ms of the 60 to 90 that these take."""
    slow = {"akunu_py.values.types", "dataclasses", "difflib", "logging", "platformdirs", "tomllib"}
    assert printed_and_imported(argument, looked_for=slow)[1] == set()


def test_help_shows_the_first_sentence_of_each_commands_own_help():
    output, imported = printed_and_imported("--help", looked_for={"akunu_py.cli.generate"})
    assert not imported
    shown = " ".join(output.partition("Commands:")[2].split())
    context = click.Context(cli)
    for name in cli.list_commands(context):
        summary = cli.get_command(context, name).get_short_help_str(200)
        assert f"{name} {summary}" in shown


def test_json_is_one_line_with_the_promised_fields(tiny_gguf):
    result = process("generate", tiny_gguf, "-p", "hello world", "--max-tokens", 8, "--json")
    assert result.returncode == 0
    assert result.stderr == b""  # nothing that a dependency prints reaches the user
    (line,) = result.stdout.decode().splitlines()
    record = json.loads(line)
    assert set(record) == {"text", "token_ids", "finish_reason", "prompt_tokens", "seed", "stats"}
    assert 1 <= len(record["token_ids"]) <= 8
    assert record["stats"]["tokens_per_pass"] >= 1


def test_sampling_options_reach_the_engine(tiny_gguf):
    options = {
        "temperature": 0.9, "top_k": 40, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.1,
        "presence_penalty": 0.2, "frequency_penalty": 0.1, "seed": 77, "max_tokens": 20,
        "num_draft_tokens": 3, "drafter": "ngram-window",     }  # fmt: skip
    with Engine.load(tiny_gguf) as engine:
        expected = engine.generate(
            "hello", stop=("zzz", "qq"), logit_bias={65: 1.5}, draft_budget="always", **options
        )
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    record = json.loads(
        run(
            "generate", tiny_gguf, "--raw", "-p", "hello", "--json", "--stop", "zzz", "--stop", "qq",
            "AKUNU_LOGIT_BIAS=65=1.5", "AKUNU_DRAFT_BUDGET=always", *flags,
        ).stdout
    )  # fmt: skip
    assert record["token_ids"] == list(expected.token_ids)
    assert record["seed"] == 77
    assert record["stats"]["drafted"] == expected.stats.drafted


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-p x --temperature nan", "--temperature is nan"),
        ("-p x --temperature hot", "'hot' is not a number"),
        ("-p x --temp -1", "--temp is -1"),
        ("-p x --temp inf", "--temp is inf"),
        ("-p x -t 200", "Error: -t 200 would be a temperature"),
        ("-p x --temp=200", "Error: --temp is 200.0; give"),
        ("-p x --temperature 200", "Error: --temperature is 200.0; give"),
        ("-p x -n0", "Error: -n is 0; give"),
        ("-p x --num-predict 0", "Error: --num-predict is 0; give"),
        ("-p x -n many", "'-n': 'many' is not"),
        ("-p x --max-tokens 1e3", "'1e3' is not a whole number"),
        ("-p x -s 'Be brief.'", "for a system message type --system TEXT"),
        (f"-p x --seed {2**70}", "seed is"),
        ("-p x AKUNU_LOGIT_BIAS=1=nan", "the bias of token 1 is nan"),
        ("-p x AKUNU_TRACE_FILE=/", "is a directory"),
        (
            "-p x AKUNU_TRACE_FILE=/no/such/folder/x",
            "the folder /no/such/folder for the trace file does not exist",
        ),
        ("-p x AKUNU_TRACE_FILE=" + "n" * 300, "cannot be written"),
        ("-p x AKUNU_MEMORY=/dev/null", "is a file"),
        ("-p x --lenience 0.3 -t 0.8", "set --draft-sampling to 'rejection'"),
        ("-p x --lenience 0", "--lenience is 0"),
        ("-p x --no-adjust", "a temperature above 0"),
        ("-p x --drafter draft-model", "there is no draft model to ask; give --draft-model"),
        ("-p x --draft-model nowhere.gguf", "there is no model named nowhere.gguf"),
        ("-p x --draft-temperature -1", "--draft-temperature is -1"),
        ("-p x --draft-sampling both", "Invalid value for '--draft-sampling'"),
        ("-p x --context 1", "--context is 1"),
        ("-p x --q6k=8bit", "config set q6k 8bit, or put AKUNU_Q6K=8bit before"),
        (
            "-p x --no-stop-loops",
            "type akunu config set stop-loops false, or put AKUNU_STOP_LOOPS=false",
        ),
        ("-p x AKUNU_PRE_TOKENIZER=nothing", "qwen2"),
        ("-p x AKUNU_COMPUTE_TYPE=float8", "'float8' is not one of"),
        ("-p x --num-draft-tokens -1", "--num-draft-tokens is -1"),
        ("-p x --max-tokens 0", "--max-tokens is 0; give 1 or more, or leave it out"),
        ("-p x --top-p 2", "--top-p is 2"),
        ("-p x --seed -3", "--seed is -3"),
        ("-p x --drafter magic", "no drafter named 'magic'"),
        ("-p x AKUNU_LOGIT_BIAS=5", "as in 42=-1.5"),
        ("-p x AKUNU_LOGIT_BIAS=99999=1", "token ids are whole numbers"),
        ("-p x --stop ''", "--stop is empty"),
        ("-p x --kv-bits 5", "give 4 or 8"),
        ("-p x --context 100000", "this model allows 2 to 256"),
        ("-p x --file y", "either a prompt or --file"),
        ("-p x --raw --system s", "--system needs the chat template"),
        ("-p ''", "there is no prompt"),
        ("", "there is no prompt"),
        ("--file /nowhere/at/all", "cannot be read"),
        ("-p x --no-such-option", "No such option"),
        ("other.gguf -p x", "the prompt is given twice"),
    ],
)
def test_wrong_options_are_explained_as_they_were_typed(tiny_gguf, line, words):
    """Before a reply, and by the names of their flags."""
    assert words in run("generate", tiny_gguf, *shlex.split(line), code=2).stderr


@pytest.mark.slow
def test_closed_standard_streams(tiny_gguf):
    line = " ".join(AKUNU[:2]) + f" '{AKUNU[2]}'"
    for closing in ("<&-", ">&-", "2>&-"):
        result = subprocess.run(
            ["/bin/sh", "-c", f"{line} generate '{tiny_gguf}' -p hello --max-tokens 4 {closing}"],
            capture_output=True, check=False, timeout=120,
        )  # fmt: skip
        assert b"Traceback" not in result.stderr


def test_chat_without_a_terminal(tiny_gguf):
    lines = 'hello world\n/stats\n/nonsense\n"""two\nlines"""\n/reset\n/help\n\nthe model\n/exit\n'
    result = run("chat", tiny_gguf, "--max-tokens", 6, input=lines)
    assert result.exit_code == 1  # for /nonsense
    notes = result.stderr
    # Of three replies, and of the last one again in /stats.
    assert notes.count("tokens/s") == 4
    assert "this run: 1 reply\n" in notes
    assert "unknown command /nonsense" in notes
    assert "the conversation is forgotten" in notes
    assert "/exit" in result.stdout


def test_chat_survives_a_full_context(tiny_gguf):
    lines = ("hello world the model " * 200) + "\nhello\n"
    result = run("chat", tiny_gguf, "--max-tokens", 3, input=lines)
    assert result.exit_code == 1  # for the message that was refused
    assert "the message has 805 tokens and the context holds 256" in result.stderr
    assert result.stderr.count("tokens/s") == 1


def test_chat_needs_a_template(tmp_path):
    path = write_tiny_llama(tmp_path / "m.gguf", chat_template=None)
    said = run("generate", path, "Hello")
    assert said.exit_code == 1
    assert "this model has no chat template; with --raw it continues the prompt" in said.output
    assert run("generate", path, "Hello", "--raw", "-n", "1").exit_code == 0
    result = run("chat", path)
    assert result.exit_code == 1
    assert "no chat template" in result.output


def test_control_characters_never_reach_a_terminal(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert printable("a\x1b[31mb\tc\nd\x07\x9b") == "a�[31mb\tc\nd��"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert printable("\x1b[31m") == "\x1b[31m"


def test_the_endless_options_name_every_end_id(tiny_gguf):
    with Engine.load(tiny_gguf) as engine:
        assert [f"{id_}=-1e6" for id_ in sorted(engine.tokenizer.end_ids)] == ENDLESS[0].split(
            "=", 1
        )[1].split()


@pytest.fixture
def log():
    logger = logging.getLogger("akunu_py")
    before, level = list(logger.handlers), logger.level
    yield logging.getLogger("akunu_py.somewhere")
    logger.handlers[:] = before
    logger.setLevel(level)


def test_names_in_messages_cannot_change_the_terminals_state(monkeypatch, log):
    screen = TerminalScreen()
    monkeypatch.setattr("sys.stderr", screen)
    context = click.Context(click.Command("akunu"))
    context.params = {"verbose": False, "quiet": False}
    set_up_logging(context)
    log.warning("the memory %s is ignored", "a\x1b]0;owned\x07\x1b[31m\x9b2J\u202e")
    assert screen.screen.title == ""
    assert screen.rows()[0].startswith("akunu: the memory a\N{REPLACEMENT CHARACTER}]0;owned")
    assert not set("".join(screen.written)) & set("\x1b\x07\x9b\u202e")
