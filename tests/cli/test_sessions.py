"""`akunu sessions`."""

import json
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from terminal_screen import TerminalScreen

from akunu_py.cli.chat.session_file import ChatSession
from akunu_py.cli.chat.session_store import default_store
from akunu_py.cli.main import cli
from akunu_py.engine.conversation import Turn


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.fixture
def names():
    store = default_store()
    sessions = [
        ChatSession("m", "be brief", (Turn("hello \x1b[31mthere", "hi"),)), ChatSession("m", None, (Turn("b", "c"),)),
    ]  # fmt: skip
    return [store.save_new(session).stem for session in sessions]


def run(*arguments, **options):
    return CliRunner().invoke(cli, ["sessions", *arguments], **options)


def test_none():
    assert "No conversation is kept yet" in run("list").output
    for arguments in (["show", "x"], ["rm", "x"]):
        result = run(*arguments)
        assert result.exit_code == 2
        assert "there is no session named 'x'; `akunu sessions list` lists them" in result.output
    assert run("rm", "--all").exit_code == 2
    assert run("rm").exit_code == 2
    assert run("rm", "x", "--all").exit_code == 2


def test_listed_and_shown(names):
    result = run("list")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 2
    assert all(name in result.stdout for name in names)
    assert "1 turn" in result.stdout
    records = json.loads(run("list", "--json").stdout)
    assert {record["name"] for record in records} == set(names)
    shown = run("show", names[0]).stdout
    assert shown.startswith("# hello there\n\nWith m.\n\n## System\n\nbe brief\n\n## User\n\nhello")
    assert shown.endswith("## Assistant\n\nhi\n")


def test_codes_of_a_message_do_not_reach_a_terminal(names, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout", TerminalScreen(columns=200))
    cli(["sessions", "list"], standalone_mode=False)
    assert "hello \N{REPLACEMENT CHARACTER}[31mthere" in sys.stdout.text()


def test_names_are_completed(names):
    command = cli.get_command(None, "sessions").get_command(None, "show")
    (argument,) = command.params[:1]
    found = argument.shell_complete(click.Context(command), names[0][:4])
    assert {item.value for item in found} == set(names)
    assert argument.shell_complete(click.Context(command), "x") == []


def test_searched(names):
    found = run("search", "HELLO")
    assert found.exit_code == 0
    (line,) = found.stdout.splitlines()
    assert line.startswith(names[0])
    assert "hello" in line
    nothing = run("search", "no", "such", "text")
    assert nothing.exit_code == 2
    assert "no conversation has 'no such text'" in nothing.stderr


def test_deleted(names):
    assert run("rm", names[0], input="n\n").exit_code == 1
    assert len(default_store().sessions()) == 2
    assert run("rm", names[0], input="y\n").exit_code == 0
    assert [stored.name for stored in default_store().sessions()] == names[1:]
    assert run("rm", "--all", "--yes").exit_code == 0
    assert default_store().sessions() == []


def test_all_is_gone_that_was_kept(names, tmp_path):
    data = tmp_path / "akunu"
    (data / "sessions" / f".{names[0]}-2.json.01234567").write_text("hello")
    assert run("rm", names[0], input="n\n").exit_code == 1
    assert len([path for path in data.rglob("*") if path.is_file()]) == 3
    assert run("rm", names[0], "--yes").exit_code == 0
    assert run("rm", "--all", "--yes").exit_code == 0
    assert [path for path in data.rglob("*") if path.is_file()] == []


def test_what_cannot_be_deleted_keeps_nothing_else(names, monkeypatch):
    kept = default_store().find(names[0]).path
    unlink = Path.unlink

    def refuse(path, **options):
        if path == kept:
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path, **options)

    (kept.parent / "2026-01-01-000000.json").mkdir()
    monkeypatch.setattr(Path, "unlink", refuse)
    done = run("rm", "--all", "--yes")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == f"  {kept} cannot be deleted: Operation not permitted"
    assert [stored.path for stored in default_store().sessions()] == [kept]
