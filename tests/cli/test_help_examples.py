"""Every example of every --help page and of README.md is one that akunu takes; cheap ones are run."""

import contextlib
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command_help import words_left

from akunu_py.cli.main import cli
from akunu_py.model_store.known_models import default_model_path

README = Path(__file__).resolve().parents[2] / "README.md"
PLACEHOLDER = "COMMAND"
ENDS = {"|", "&&", ">", ">>", ";"}
CHEAP = (
    "config path", "config show", "completion", "counts", "generate", "models list",
    "models path", "models alias", "models show", "doctor --no-self-test",
)  # fmt: skip


def pages(command, context, words=()):
    yield words, command.help
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from pages(command.get_command(context, name), context, (*words, name))


def help_lines():
    for _, text in pages(cli, click.Context(cli)):
        _, _, block = text.partition("Examples:\n")
        for line in block.split("\n\n")[0].splitlines():
            yield line.strip()


def readme_lines():
    for line in README.read_text(encoding="utf-8").splitlines():
        if line.startswith("    ") and "akunu" in line:
            yield line.strip()


def calls(line):
    """Yield the arguments of each call of akunu in a line of a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words = [[]]
    for word in lexer:
        if word in ENDS:
            words.append([])
        else:
            words[-1].append(word)
    for found in words:
        while found and "=" in found[0]:
            del found[0]
        if found and found[0] == "akunu":
            yield found[1:]


EXAMPLES = sorted({
    tuple(call)
    for line in (*help_lines(), *readme_lines())
    for call in calls(line)
    if PLACEHOLDER not in call
})  # fmt: skip


def parse(command, name, arguments, parent=None):
    """Parse as click does, down to the command, without running it."""
    context = command.make_context(name, list(arguments), parent=parent)
    if isinstance(command, click.Group):
        found, below, rest = command.resolve_command(context, words_left(context))
        parse(below, found, rest, context)


def test_there_are_examples():
    assert len(EXAMPLES) > 50


@pytest.mark.lab
@pytest.mark.parametrize("arguments", EXAMPLES, ids=" ".join)
def test_an_example_is_taken(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # --help and --version
    with contextlib.suppress(click.exceptions.Exit):
        parse(cli, "akunu", arguments)


@pytest.mark.fast_every(2)
@pytest.mark.lab
@pytest.mark.parametrize(
    "arguments", [one for one in EXAMPLES if " ".join(one).startswith(CHEAP)], ids=" ".join
)
def test_an_example_works(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AKUNU_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "config.toml").write_text("")
    for name in ("model.gguf", "my-model.gguf"):
        (tmp_path / name).symlink_to(default_model_path())
    (tmp_path / "question.txt").write_text("Who are you?")
    (tmp_path / "questions.jsonl").write_text('{"prompt": "Who are you?"}')
    (tmp_path / "logs.txt").write_text("one line\nanother line\n")
    for name in ("logs.counts", "corpus.counts"):
        if name in arguments and "fit" not in arguments:
            fit = ["counts", "fit", "logs.txt", "--output", name]
            assert CliRunner().invoke(cli, fit).exit_code == 0
    if any("hf:" in word or "OWNER" in word for word in arguments) or "qwen" in arguments:
        pytest.skip("a model on the hub")
    words = [*arguments, *(["--max-tokens", "4"] if arguments[0] == "generate" else [])]
    result = CliRunner().invoke(cli, words, input="")
    assert result.exit_code == 0, result.output
    assert bool(result.output) == (arguments[:3] != ("models", "alias", "mine"))
