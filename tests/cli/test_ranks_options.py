"""What a command does with ranks before any other process is there."""

import os
import socket

import pytest
from akunu_runs import run

from akunu_py.cli import ranks, serve


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["chat", "m", "--hosts", "h.json", "-v"], ["chat", "m", "-v"]),
        (["chat", "--hosts=h.json", "m"], ["chat", "m"]),
        (["generate", "m", "--", "--hosts", "x"], ["generate", "m", "--", "--hosts", "x"]),
        (["generate", "--hosts"], ["generate"]),
    ],
)
def test_the_hosts_are_left_out_of_what_each_rank_runs(words, kept):
    assert ranks._without_hosts(words) == kept


def test_hosts_start_the_same_command_under_the_launcher(monkeypatch, tmp_path):
    hosts = tmp_path / "hosts.json"
    hosts.write_text("[]")
    started = []

    def execute(program, words):
        started.append((program, words))
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", execute)
    words = ["generate", "m.gguf", "--hosts", str(hosts), "-p", "Who?"]
    monkeypatch.setattr("sys.argv", ["akunu", *words])
    assert run(*words).exit_code == 0
    ((program, given),) = started
    assert program.endswith("mlx.launch")
    assert given[1:4] == ["--hostfile", str(hosts), "--"]
    assert given[5:] == ["-m", "akunu_py", "generate", "m.gguf", "-p", "Who?"]


def test_a_missing_file_of_hosts_is_named(tmp_path):
    done = run("chat", "--hosts", str(tmp_path / "none.json"))
    assert done.exit_code == 2
    assert "none.json is not a file" in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["generate", "x y", "--hosts", os.devnull], "leave --hosts out"),
        (["generate", "-"], "standard input has no end"),
        (["serve", "--models", "folder"], "leave --models out"),
        (["serve", "--allow-pull"], "leave --allow-pull out"),
        (["serve", "--idle-unload", "30m"], "leave --idle-unload out"),
        (["serve", "--cache-dir", "folder"], "leave --cache-dir out"),
        (["tune"], "tune runs on one machine"),
        (["launch", "claude"], "launch runs on one machine"),
    ],
)
def test_what_ranks_cannot_do_is_refused(monkeypatch, words, said):
    monkeypatch.setenv("MLX_RANK", "0")
    done = run(*words)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


def test_only_rank_0_takes_the_port(monkeypatch):
    monkeypatch.setenv("MLX_RANK", "1")

    def follow(*_model, several, replies):
        assert several
        assert not replies
        raise SystemExit(0)

    monkeypatch.setattr(serve, "load_engine", follow)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("serve", "--port", str(taken.getsockname()[1]))
    assert done.exit_code == 0


def test_settings_of_hosts_do_not_hold_for_a_rank(monkeypatch, tmp_path):
    """It inherits the variable from the command that started it."""
    monkeypatch.setenv("MLX_RANK", "0")
    monkeypatch.setenv("AKUNU_HOSTS", str(tmp_path / "hosts.json"))
    assert "standard input has no end" in " ".join(run("generate", "-").output.split())
