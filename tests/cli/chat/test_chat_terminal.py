"""`akunu chat` as somebody at a terminal meets it."""

import os
import re
import shutil
import stat
import sys

import click
import pytest

pytest.importorskip("termios")
import resource
import signal
import termios

from pty_child import PtyChild
from resizing_screen import ResizingScreen
from terminal_screen import TerminalScreen

from akunu_py.cli.chat.session_file import load_session
from akunu_py.cli.command import Command
from akunu_py.cli.main import cli
from akunu_py.cli.terminal import echo
from akunu_py.engine.engine import Engine
from akunu_py.system.errors import ConfigError

# The end-of-generation ids of the tiny vocabulary are never chosen, and nothing is drafted.
ENDLESS = ["AKUNU_LOGIT_BIAS=331=-1e6 335=-1e6", "--drafter", "none"]


@pytest.fixture
def chat(tiny_gguf, tmp_path):
    def start(*arguments, **options):
        return PtyChild("chat", tiny_gguf, *arguments, home=tmp_path, **options)

    return start


def children_s():
    """Processor time of the programs that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def shown(child, columns=80, rows=24):
    """What the terminal showed, with all that scrolled out of it."""
    screen = TerminalScreen(columns, rows)
    screen.write(child.seen)
    return screen.rows()


def bold_at_the_prompt(child):
    screen = TerminalScreen()
    screen.write(child.seen)
    return screen.cells("> hello").bold


def test_a_first_chat_and_history_in_the_next(chat, tmp_path):
    with chat(*ENDLESS, "--max-tokens", 4) as child:
        child.until("/help lists the commands")
        child.say("hello world\r")
        child.leave()
    assert "context 256" in "\n".join(shown(child))
    assert bold_at_the_prompt(child)
    # What was typed is read from there, too.
    assert [entry.name for entry in (tmp_path / "akunu").iterdir()] == ["sessions"]
    with chat(*ENDLESS, "--max-tokens", 4) as child:
        child.say("\x1b[A", "hello world")
        child.type("\r")
        child.until("tokens/s")
        child.leave()


@pytest.mark.slow
def test_several_lines_paste_and_completion(chat, tmp_path):
    path = tmp_path / "s.json"
    with chat("--max-tokens", 4) as child:
        child.say("one\x1b\rtwo\r")
        child.say('"""/three\rfour"""\r')
        child.say("\x1b[200~five\n/six\n\x1b[201~\r")
        child.say("/sa\t " + str(path) + "\r", "saved in")
        child.leave()
    content = path.read_text("utf-8")
    assert '"user": "one\\ntwo"' in content
    assert '"user": "/three\\nfour"' in content
    assert '"user": "five\\n/six\\n"' in content


def test_an_interrupt_ends_the_reply_and_two_the_chat(roomy_gguf, tmp_path):
    # Its end ids are never chosen: 2,000 tokens, which take seconds.
    endless = ["AKUNU_LOGIT_BIAS=2=-1e6 6=-1e6", "--drafter", "none"]
    with PtyChild("chat", roomy_gguf, *endless, home=tmp_path) as child:
        child.ready()
        child.type("hello\r")
        child.characters(40)
        child.interrupt()
        child.until("interrupted")
        child.ready()
        assert "^C" not in child.seen
        child.type("/stats\r")
        child.until("1 reply")
        child.say("half a line", "half a line")
        child.interrupt()  # drops the line alone
        child.interrupt()
        child.until("Ctrl-C again")
        child.ready()
        child.interrupt()
        assert child.wait() == 0


@pytest.mark.slow
def test_edit_opens_the_editor_and_sends_what_it_saved(chat, tmp_path):
    editor = tmp_path / "editor"
    # click asks for a newer time of the file.
    editor.write_text(
        f"#!{sys.executable}\nimport os, sys\npath = sys.argv[-1]\nold = open(path).read()\n"
        "open(path, 'w').write(old.replace('hello', 'the world'))\nos.utime(path, (2e9, 2e9))\n"
    )
    editor.chmod(0o700)
    path = tmp_path / "s.json"
    with chat("--max-tokens", 4, EDITOR=str(editor), VISUAL="") as child:
        child.say("hello\r")
        child.say("/edit\r")
        child.say(f"/save {path}\r", "saved in")
        child.leave()
    content = path.read_text("utf-8")
    assert '"user": "the world"' in content
    assert "hello" not in content


@pytest.mark.slow
def test_an_editor_that_fails_is_a_note(chat):
    with chat("--max-tokens", 4, EDITOR="false", VISUAL="") as child:
        child.say("hello\r")
        child.say("/edit\r", "ended with an error")
        child.leave()


@pytest.mark.slow
def test_a_resize_redraws_what_is_typed(chat):
    with chat("--max-tokens", 4) as child:
        child.say("x" * 100, "x" * 10)
        child.resize(50, 200)
        # One row holds it all now.
        child.until("x" * 100)
        child.type("\r")
        child.until("tokens/s")
        child.leave()


@pytest.mark.slow
@pytest.mark.parametrize("lines", [25, 60])
def test_a_message_taller_than_the_screen_is_there_once(roomy_gguf, tmp_path, lines):
    with PtyChild("chat", roomy_gguf, "--max-tokens", 4, home=tmp_path) as child:
        child.ready()
        child.type('"""\r' + "".join(f"line {n}\r" for n in range(lines - 2)))
        child.type('the end"""\r')
        child.until("tokens/s")
        child.type("/stats\r")
        child.until("1 reply")
        child.type("/exit\r")
        assert child.wait() == 0
    rows = shown(child)
    start = rows.index('> """')
    wanted = ['> """', *(f"  line {n}" for n in range(lines - 2)), '  the end"""']
    assert rows[start : start + lines] == wanted
    # Then the reply and what it came to, and nothing of the message.
    reply = rows[start + lines : rows.index("> /stats")]
    assert "tokens/s" in "".join(reply)
    assert not any("line" in row for row in reply)


@pytest.mark.slow
def test_a_line_taller_than_the_screen_is_there_once(chat):
    words = " ".join(f"w{number}" for number in range(500))
    with chat("--max-tokens", 4) as child:
        child.say(words + "\r", "context holds")
        child.leave()
    text = "".join(shown(child))
    assert text.count("w17 ") == text.count("w498 ") == 1


@pytest.mark.slow
def test_what_is_typed_during_a_reply_is_not_shown_in_it(roomy_gguf, tmp_path):
    # 1,000 tokens take seconds: they come before and after what is typed.
    endless = ["AKUNU_LOGIT_BIAS=2=-1e6 6=-1e6", "--drafter", "none"]
    with PtyChild("chat", roomy_gguf, *endless, "--max-tokens", 1000, home=tmp_path) as child:
        child.ready()
        child.type("hello\r")
        child.characters(40)
        child.type("typed ahead")
        child.until("tokens/s")
        # The next prompt has it.
        child.until("typed ahead")
        child.type("\x15/exit\r")
        assert child.wait() == 0
    reply, _, _ = "\n".join(shown(child)).partition("tokens/s")
    assert "typed ahead" not in reply


HELD = """
import threading
from contextlib import contextmanager

from akunu_py.cli import terminal

interrupted = threading.Event()
bar, on_interrupt = terminal.prompt_progress, terminal.cancel_on_interrupt


@contextmanager
def prompt_progress():
    with bar() as progress:
        yield lambda *counts: (progress(*counts), interrupted.wait())


terminal._BAR_AFTER_S = 0.0
terminal.prompt_progress = prompt_progress
terminal.cancel_on_interrupt = lambda cancel: on_interrupt(lambda: (cancel(), interrupted.set()))

from akunu_py.cli.main import main

main()
"""
"""A chat whose prompts are read until somebody interrupts, with a bar at once."""


@pytest.mark.slow
def test_an_interrupted_prompt_leaves_no_progress_bar(chat):
    with chat("--max-tokens", 4, program=[sys.executable, "-c", HELD]) as child:
        child.say("hello world\r", "reading")
        child.interrupt()
        child.until("interrupted before anything was said; /retry asks again")
        child.leave()
    before, _, _ = "\n".join(shown(child)).partition("interrupted before")
    assert "reading" not in before
    assert "0 tokens" not in before


@pytest.mark.slow
def test_a_dumb_terminal_gets_no_codes(chat):
    with chat("--max-tokens", 4, TERM="dumb") as child:
        child.until("/exit leaves")
        child.until("> ")
        child.type("hello\r")
        child.until("tokens/s")
        child.until("> ")
        child.type('"""\r/two\r"""\r')
        child.until("tokens/s")
        child.type("\x04")
        assert child.wait() == 0
    assert "\x1b" not in child.seen


@pytest.mark.slow
def test_a_line_is_taken_to_the_editor(chat, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text(
        f"#!{sys.executable}\nimport sys\npath = sys.argv[-1]\nold = open(path).read()\n"
        "open(path, 'w').write(old.replace('half', 'whole'))\n"
    )
    editor.chmod(0o700)
    with chat("--max-tokens", 4, EDITOR=str(editor), VISUAL="") as child:
        child.say("half a line\x18\x05", "whole a line")
        child.type("\r")
        child.until("tokens/s")
        child.leave()


@pytest.mark.slow
def test_a_megabyte_is_pasted_as_words_and_refused_by_a_small_context(chat):
    text = "hello world " * 87_382
    started = children_s()
    with chat("--max-tokens", 4) as child:
        child.say(f"\x1b[200~{text}\x1b[201~", "[paste 1: 1,048,584 characters]")
        child.type("\r")
        child.until("holds 256, the reply included")
        child.leave()
    assert children_s() - started < 15  # measured: 3.4


@pytest.mark.slow
def test_codes_in_a_file_name_do_not_reach_the_terminal(chat, tmp_path):
    (tmp_path / "evil\x1b]0;title\x07\x1b[2J.txt").write_text("hello")
    with chat("--max-tokens", 4) as child:
        child.say(f"/file {tmp_path}/evil\t", ".txt")
        child.type("\r")
        child.until("goes with the next message")
        child.say("/show\r", "file ")
        child.leave()
    assert "\x1b]0;title" not in child.seen


@pytest.mark.slow
def test_turns_have_space_between_them(chat):
    with chat("--max-tokens", 4) as child:
        child.say("hello\r")
        child.ready()
        child.type("/draft show\r")
        child.say("world\r")
        child.leave()
    rows = shown(child)
    for line, said in (("> hello", "reply"), ("> /draft show", "note"), ("> world", "reply")):
        place = rows.index(line)
        assert rows[place - 1] == "", line
        assert (rows[place + 1] == "") == (said == "reply"), line
    # Of a reply with drafts shown one line says what it was made of, and its pace.
    (sentence,) = (row for row in rows if " tokens in " in row)
    assert sentence.endswith("ended by the token limit") or "tokens/s" in sentence
    assert len([row for row in rows if "tokens/s" in row]) == 2


@pytest.mark.slow
def test_words_are_typed_whole(chat):
    words = " ".join(f"word{number}" for number in range(20))
    with chat("--max-tokens", 4, columns=50) as child:
        child.say(f"{words}\r")
        child.leave()
    rows = shown(child, 50)
    place = next(number for number, row in enumerate(rows) if row.startswith("> word0"))
    typed = rows[place : rows.index("", place)]
    assert len(typed) > 1
    assert typed[0].startswith("> ")
    assert all(row.startswith("  word") for row in typed[1:])
    assert " ".join(row[2:].strip() for row in typed) == words


@pytest.mark.slow
def test_a_conversation_goes_on_in_the_next_chat(tiny_gguf, chat, tmp_path):
    with chat(*ENDLESS, "--max-tokens", 8) as child:
        child.say("hello\r")
        child.leave()
    (kept,) = (tmp_path / "akunu" / "sessions").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    # The model comes with the conversation.
    with PtyChild("chat", "--continue", *ENDLESS, "--max-tokens", 8, home=tmp_path) as child:
        child.until("turns: 1")
        child.until("> hello")
        child.say("world\r")
        child.say("/sessions\r", "2 turns")
        child.ready()
        child.type("/new\r")
        child.say(f"/sessions {kept.stem}\r", "turns: 2")
        child.until("> world")
        child.leave()
    assert '"user": "world"' in kept.read_text("utf-8")
    assert [entry.name for entry in kept.parent.iterdir()] == [kept.name]


@pytest.mark.slow
def test_a_file_is_named_with_an_at_and_one_on_the_command_line(tiny_gguf, tmp_path):
    """Tab completes the name, and both say how many tokens they bring."""
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "more notes.txt").write_text("world")
    options = ["--max-tokens", 8, *ENDLESS]
    with PtyChild(
        "chat", tmp_path / "notes.txt", "-m", tiny_gguf, *options, home=tmp_path
    ) as child:
        child.until("notes.txt, ")
        child.until("goes with the first message")
        child.say(f"see @{tmp_path}/mo\t\r")
        child.say("/sessions see\r", "/sessions NAME continues one")
        child.leave()
    text = "\n".join(shown(child, 80))
    assert re.search(r"^more notes\.txt, \d+ tokens?, goes with this message$", text, re.MULTILINE)
    (kept,) = (tmp_path / "akunu" / "sessions").iterdir()
    (turn,) = load_session(kept).turns
    assert turn.user.startswith(
        "notes.txt:\n```\nhello\n```\n\nmore notes.txt:\n```\nworld\n```\n\nsee @"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate", "-p", "Say it:"], r"standard input: \d+ tokens"),
        (["chat"], "each line of standard input is a message"),
    ],
)
def test_a_pipe_says_what_it_brings(tiny_gguf, tmp_path, arguments, words):
    program = ["sh", "-c", 'printf "hello world" | exec "$@"', "sh", *PtyChild.program]
    more = ["--max-tokens", 2, "--model", tiny_gguf]
    for quiet in ([], ["--quiet"]):
        with PtyChild(*arguments, *more, *quiet, home=tmp_path, program=program) as child:
            assert child.wait() == 0
        assert bool(re.search(words, child.seen)) == (not quiet)


@pytest.mark.slow
def test_a_model_is_picked_by_its_number(chat, tiny_gguf, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "other.gguf").symlink_to(shutil.copy(tiny_gguf, tmp_path / "copy.gguf"))
    with chat(*ENDLESS, "--max-tokens", 8, AKUNU_MODEL_FOLDERS=str(folder)) as child:
        child.say("/model\r", "Which model shall answer?")
        child.until("akunu-tiny")
        number = re.findall(r"(\d)\.", child.until("other.gguf"))[-1]
        child.type(f"{number}\r")
        child.until("context 256")
        child.say("/model\r", "Which model shall answer?")
        child.until("in use")
        child.type("\x03")
        child.until("the model stays as it is")
        child.say("/show\r", "copy.gguf")
        child.leave()


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "columns"), [(24, 80), (50, 160)])
def test_help_is_on_one_screen_and_settings_say_where_they_come_from(chat, rows, columns):
    options = {"rows": rows, "columns": columns, "AKUNU_TOP_K": "5"}
    with chat("--max-tokens", 4, "-t", "0", **options) as child:
        child.ready()
        child.type("/help\r")
        child.ready()
        screen = TerminalScreen(columns, rows)
        screen.write(child.seen)
        visible = "\n".join(screen.screen.display)
        assert "> /help" in visible
        assert "/help all explains" in visible
        child.type("/set\r")
        child.leave()
    text = " ".join("\n".join(shown(child, columns, rows)).split())
    assert re.search(r"top_k 5 .*? 0: all \(AKUNU_TOP_K\)", text)
    assert re.search(r"max_tokens 4 .*? \(--max-tokens\)", text)
    assert "In brackets: where a value comes from." in text


@pytest.mark.slow
def test_what_shall_not_be_kept_is_not(chat, tmp_path):
    """Whatever is typed, with files, several lines and a memory in the settings."""
    (tmp_path / "secret.txt").write_text("secret in a file")
    (tmp_path / "settings.toml").write_text(
        f'[chat]\nmemory = "{tmp_path}/memory"\ntrace-file = "{tmp_path}/trace"\n'
    )
    options = ("--max-tokens", 8, "--no-keep", "--system", "secret system")
    with chat(*ENDLESS, *options, AKUNU_CONFIG=str(tmp_path / "settings.toml")) as child:
        for line in (
            "secret", f"/file {tmp_path}/secret.txt", '"""secret\rlines"""', "/system secret again",
            "/undo", "/reset",
        ):  # fmt: skip
            child.ready()
            child.type(f"{line}\r")
        child.leave()
    written = [
        path for path in tmp_path.rglob("*") if path.is_file() and b"secret" in path.read_bytes()
    ]
    assert written == [tmp_path / "secret.txt"]
    assert not (tmp_path / "akunu").exists()


@pytest.fixture
def shown_keys(monkeypatch):
    """Say whether the terminal of standard input shows what is typed."""
    leader, follower = os.openpty()
    with os.fdopen(follower) as keys:
        monkeypatch.setattr(sys, "stdin", keys)
        yield lambda: bool(termios.tcgetattr(keys)[3] & termios.ECHO)
    os.close(leader)


def test_what_is_typed_before_the_first_prompt_is_not_shown_then(
    tiny_gguf, shown_keys, monkeypatch
):
    """The prompt shows it once more."""
    found = []

    def load(*_arguments, **_options):
        found.append(shown_keys())
        raise ConfigError("it is damaged")

    monkeypatch.setattr(Engine, "load", load)
    parse = Command.parse_args
    monkeypatch.setattr(
        Command, "parse_args", lambda *given: [found.append(shown_keys()), parse(*given)][1]
    )
    with pytest.raises(click.UsageError, match="damaged"):
        cli(["chat", str(tiny_gguf)], standalone_mode=False)
    assert shown_keys()
    with pytest.raises(click.UsageError, match="no-such"):
        cli(["chat", "--no-such"], standalone_mode=False)
    assert shown_keys()
    # Of akunu itself, which shows it; of the chat; of the model; and the same again.
    assert found == [True, False, False, True, False]


def test_keys_stay_hidden_after_a_stop(shown_keys):
    def go_on():
        """Do as a shell does, whose terminal shows what is typed."""
        changed = termios.tcgetattr(sys.stdin)
        changed[3] |= termios.ECHO
        termios.tcsetattr(sys.stdin, termios.TCSANOW, changed)
        os.kill(os.getpid(), signal.SIGCONT)

    with echo(False):
        go_on()
        assert not shown_keys()
        with echo(True):
            go_on()
            assert shown_keys()
        assert not shown_keys()
    go_on()
    assert shown_keys()


@pytest.mark.slow
def test_a_chat_resized_to_fifty_columns_and_back(chat):
    """What is said before, while it is narrow and after stands there once, as it was drawn."""
    with chat("--max-tokens", 4) as child:
        child.say("first\r")
        child.ready()
        before = len(child.seen)
        child.resize(24, 50)
        child.type("second " * 12 + "\r")
        child.until("tokens/s")
        child.ready()
        narrow = len(child.seen)
        child.resize(24, 80)
        child.type("third\r")
        child.until("tokens/s")
        child.leave()
    screen = TerminalScreen(80, 24)
    screen.write(child.seen[:before])
    screen.screen.resize(24, 50)
    screen.write(child.seen[before:narrow])
    screen.screen.resize(24, 80)
    screen.write(child.seen[narrow:])
    rows = screen.rows()
    assert rows.count("> first") == rows.count("> third") == 1
    assert "".join(rows).count("second") == 12
    assert all(len(row) <= 50 for row in rows if "second" in row)


@pytest.mark.slow
@pytest.mark.parametrize("reflows", [True, False])
def test_a_line_is_typed_while_the_screen_changes_its_width(chat, reflows):
    """Where a terminal wraps its rows anew, as where it cuts them off, it is there once."""
    screen = ResizingScreen(160, 50, reflows=reflows)
    words = [f"word{number}" for number in range(60)]
    # xterm cuts rows off, and says that it is xterm.
    environment = {} if reflows else {"XTERM_VERSION": "XTerm(390)"}
    with chat("--max-tokens", 4, rows=50, columns=160, **environment) as child:
        child.ready()
        # Rows above, which scroll out: a narrower tmux keeps the blank rows below.
        child.type("/help\r")
        child.ready()
        written = 0
        for count, columns in ((30, 50), (10, 160), (10, 80), (5, 50), (5, 160)):
            typed, words = words[:count], words[count:]
            child.type(" ".join(typed) + " ")
            child.until(typed[-1])
            screen.write(child.seen[written:])
            written = len(child.seen)
            screen.resize(columns, 50)
            child.resize(50, columns)
            child.until(typed[-1])  # it is drawn anew
        child.type("end\r")
        child.until("the context holds 256")
        screen.write(child.seen[written:])
        child.leave()
    text = " ".join(screen.rows())
    assert re.findall(r"word\d+", text) == [f"word{number}" for number in range(60)]
    assert text.count("> word0") == 1
    # Nothing that was said before is erased.
    assert "/help lists the commands" in text
    assert re.search("Ctrl-C +stop a reply and keep what was said", text)


@pytest.mark.slow
def test_a_quiet_chat_says_nothing_of_itself(chat):
    """`test_a_first_chat_and_history_in_the_next` has what others say."""
    with chat("--max-tokens", 4, program=[*PtyChild.program, "--quiet"]) as child:
        child.ready()
        child.type("hello\r")
        child.leave()
    said = "\n".join(shown(child))
    assert "context 256" not in said
    assert "tokens/s" not in said
    assert bold_at_the_prompt(child)


@pytest.mark.slow
def test_to_go_on_without_the_model_that_answered(tiny_gguf, tmp_path):
    """The default model does; here that is the toy."""
    path = tmp_path / "gone.gguf"
    path.symlink_to(tiny_gguf)
    with PtyChild("chat", path, *ENDLESS, "--max-tokens", 4, home=tmp_path) as child:
        child.say("hello\r")
        child.leave()
    path.unlink()
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "default-model-declined").touch()
    folders = {"AKUNU_DATA_DIR": str(tmp_path / "none"), "AKUNU_CACHE_DIR": str(cache)}
    with PtyChild("chat", "--continue", home=tmp_path, **folders) as child:
        child.until("akunu-tiny answers, a toy")
        child.until("answered then, akunu-tiny does")
        child.leave()
