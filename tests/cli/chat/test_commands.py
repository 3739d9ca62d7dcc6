"""Commands, settings and completion of a chat, without a model."""

import os
import re

import pytest

from akunu_py.cli.chat.attachments import unquote
from akunu_py.cli.chat.commands import completions, message_of, parse
from akunu_py.cli.chat.session_file import ChatSession
from akunu_py.cli.chat.session_store import default_store
from akunu_py.cli.chat.set_values import (
    CHAT_DEFAULT,
    changed_fields,
    explain,
    field_named,
    listing,
    settable,
    shown,
    with_field,
)
from akunu_py.engine.conversation import Turn
from akunu_py.system.errors import ConfigError
from akunu_py.values.generation_config import GenerationConfig


def completed(before):
    return [before[: len(before) - c.replaced] + c.text for c in completions(before)]


@pytest.mark.parametrize(
    "line", ["hello", "/usr/bin/env is what?", "/*", "//help", "/reset\nand more", "/", "/ help"]
)
def test_lines_that_are_messages(line):
    assert parse(line) is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/rset", "did you mean /reset"),
        ("/zzzz", "unknown command /zzzz; /help"),
        ("/load", "give /load FILE"),
        ("/undo 3", "/undo takes no argument"),
    ],
)
def test_wrong_commands(line, words):
    with pytest.raises(ConfigError, match=words):
        parse(line)


def test_two_slashes_stand_for_one():
    assert message_of("//help") == "/help"
    assert message_of("help") == "help"


def test_completion_of_names_settings_and_switches():
    assert sorted(completed("/s")) == [
        "/save ", "/sessions ", "/set ", "/show", "/stats", "/system ",
    ]  # fmt: skip
    assert completed("/set ngram_") == [
        "/set ngram_order", "/set ngram_min_match", "/set ngram_window",
    ]  # fmt: skip
    assert completed("/set rea") == ["/set reasoning"]
    assert completed("/draft lo") == ["/draft lookup"]
    assert completed("/draft of") == ["/draft off"]
    assert completed("hello /s") == completed("/nothing x") == completed("/set top_k 5") == []


def test_completion_of_sessions(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert completed("/sessions ") == []
    path = default_store().save_new(ChatSession("m", None, (Turn("hello", "hi"),)))
    assert completed("/sessions 20") == [f"/sessions {path.stem}"]
    assert completed("/sessions x") == []


def test_completion_of_files(tmp_path, monkeypatch):
    (tmp_path / "b folder").mkdir()
    (tmp_path / "b folder" / "c.txt").touch()
    for name in ("a.txt", ".hidden"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert completed("/file ") == ["/file a.txt", "/file b folder/"]
    assert completed("/file b f") == ["/file b folder/"]
    assert completed("/load ~/b folder/c") == ["/load ~/b folder/c.txt"]
    assert completed("/file .h") == ["/file .hidden"]
    assert completed("/file missing/x") == completed("/file a\0/") == []
    assert completed('/file "b f') == ['/file "b folder/']
    assert completed("/file 'b folder/c") == ["/file 'b folder/c.txt'"]
    assert completed('/file "a') == ['/file "a.txt"']


def test_files_of_a_message_are_completed_behind_an_at(tmp_path, monkeypatch):
    (tmp_path / "src").mkdir()
    for name in ("src/app.py", "a b.txt", "app.txt"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert completed("what is @ap") == ["what is @app.txt"]
    assert completed("@s") == ["@src/"]
    assert completed("@src/") == ["@src/app.py"]
    assert completed("look\nat @src/a") == ["look\nat @src/app.py"]
    assert completed('@"a') == ['@"a b.txt"', '@"app.txt"']
    if os.name != "nt":
        # A blank would end the name.
        assert completed("@a") == ["@a\\ b.txt", "@app.txt"]
        assert completed("@a\\ ") == ["@a\\ b.txt"]
    assert completed("me@ap") == completed("@app.txt is") == completed("@none/") == []


@pytest.mark.skipif(os.name == "nt", reason="a backslash is no escape there")
def test_completion_of_files_written_as_a_shell_wants_them(tmp_path, monkeypatch):
    (tmp_path / "b 'folder").mkdir()
    (tmp_path / "b 'folder" / "c d.txt").touch()
    monkeypatch.chdir(tmp_path)
    assert completed("/file b\\ ") == ["/file b\\ \\'folder/"]
    assert completed("/file b\\ \\'folder/c") == ["/file b\\ \\'folder/c\\ d.txt"]
    assert unquote("b\\ \\'folder/c\\ d.txt") == "b 'folder/c d.txt"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("temperature", "0.7", 0.7),
        ("top-k", "40", 40),
        ("max_tokens", "12", 12),
        ("seed", "7", 7),
        ("stop", "the end", ("the end",)),
        ("stop", "'a' and \"b\"", ("'a' and \"b\"",)),
        ("stop", r""""a\n" | 'b'""", ("a\n", "b")),
        ("logit_bias", "3=-1.5,4=2", {3: -1.5, 4: 2.0}),
        ("drafter", "lookup", "lookup"),
        ("draft-budget", "always", "always"),
    ],
)
def test_settings(name, text, value):
    config = with_field(CHAT_DEFAULT, name, text)
    field = name.replace("-", "_")
    assert getattr(config, field) == value
    assert list(changed_fields(config)) == [field]
    assert with_field(config, name, "default") == CHAT_DEFAULT


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("temprature", "1", "Did you mean temperature"),
        ("temperature", "nan", "temperature is nan"),
        ("temperature", "-1", "temperature is -1"),
        ("top_k", "many", "give a whole number"),
        ("top_p", "much", "give a number"),
        pytest.param("adjust", "perhaps", "give on or off", marks=pytest.mark.lab),
        pytest.param("adjust", "off", "set draft_sampling", marks=pytest.mark.lab),
        ("logit_bias", "a=b", "give token ids and numbers"),
        ("draft_budget", "never", "give 'auto' or 'always'"),
        ("drafter", "lokup", "did you mean 'lookup'"),
        ("ngram_order", "1", "give 2 or more"),
    ],
)
def test_wrong_settings(name, text, words):
    with pytest.raises(ConfigError, match=words):
        with_field(GenerationConfig(), name, text)


def test_what_is_shown_of_a_field_sets_it_again():
    config = GenerationConfig(
        temperature=0.5, drafter="ngram", logit_bias={3: -1.5}, top_k=4, stop=("it's\n", '"|\\')
    )
    again = GenerationConfig()
    for name, text in changed_fields(config).items():
        again = with_field(again, name, text)
    assert again == config
    assert {shown(GenerationConfig(), name) for name in settable()} >= {"random", "0", "on", "auto"}


def test_the_list_of_settings_takes_the_columns_there_are():
    config = GenerationConfig(stop=("the end",))
    values = {name: shown(config, name) for name in settable()}
    one = listing(values, None).splitlines()
    assert [line.split()[0] for line in one] == list(settable())
    assert "stop 'the end'" in one
    two = listing(values, 80).splitlines()
    # It fits into 24 lines, a prompt above and below, read down each column.
    assert len(two) <= (len(settable()) + 1) // 2 < 22
    assert [line.split()[0] for line in two] == list(settable())[: len(two)]
    assert max(map(len, two)) <= 80
    assert sorted(" ".join(two).split()) == sorted(" ".join(one).split())
    assert listing(values, 20).splitlines() == one


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("temperature", "temperature 0: 0 takes .* Give 0 for the likeliest token, or a number from"),
        ("draft-budget", "draft_budget auto: Draft what pays .* Give auto or always"),
        ("stop_loops", "stop_loops on: .* Give on or off"),
    ],
)  # fmt: skip
def test_a_setting_is_explained(name, words):
    assert re.match(words, explain(shown(CHAT_DEFAULT, field_named(name)), name))


def test_an_unknown_setting_is_not_explained():
    with pytest.raises(ConfigError, match="there is no setting named temprature"):
        explain("0", "temprature")
