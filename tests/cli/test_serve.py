"""akunu serve: its options, what it refuses before a model is loaded, and a run in a process."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest
from click.testing import CliRunner

from akunu_py.cli.main import cli
from akunu_py.engine.engine import Engine
from akunu_py.server import running


def refused(*arguments):
    result = CliRunner().invoke(cli, ["serve", *map(str, arguments)])
    assert result.exit_code in {1, 2}, result.output
    return result.stderr


@pytest.fixture(autouse=True)
def no_model(monkeypatch):
    """What is refused is refused before a model is loaded."""

    def load(*_arguments, **_options):
        pytest.fail("a model was loaded")

    monkeypatch.setattr(Engine, "load", load)


def test_another_host_needs_a_key(tmp_path):
    assert "--api-key-file" in refused("--host", "192.168.1.5")
    keys = tmp_path / "keys"
    keys.write_text("too-open-0123456789\n")
    keys.chmod(0o644)
    assert "chmod 600" in refused("--host", "192.168.1.5", "--api-key-file", keys)


def test_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"another program listens on port {port}" in refused("--port", port)


def test_host_that_is_not_of_this_machine(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("0123456789-abcdef\n")
    keys.chmod(0o600)
    said = refused("--host", "192.0.2.1", "--api-key-file", keys, "--port", "0")
    assert "192.0.2.1 cannot be used" in said


@pytest.mark.parametrize("size", ["", "4 elephants", "-1GB", "4GBB", "1e9", "99999999999GB"])
def test_sizes(size):
    assert "is not a size" in refused("--cache-memory", size)


@pytest.mark.parametrize(
    ("option", "value"), [("--port", "70000"), ("--parallel", "0"), ("--allowed-origin", "*")]
)
def test_options_out_of_range(option, value):
    assert value in refused(option, value)


def test_listening_on_a_free_port():
    with running.listen("127.0.0.1", 0) as one, running.listen("localhost", 0) as other:
        assert one.getsockname()[1] != other.getsockname()[1]


def test_the_body_of_an_answer_does_not_wait_for_the_ack_of_its_head():
    with running.listen("127.0.0.1", 0) as listening:
        client = socket.create_connection(listening.getsockname())
        connection, _ = listening.accept()
        with client, connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("given", ["", "soon", "-5m", "5 days", "30min"])
def test_times(given):
    assert "is not a time" in refused("--idle-unload", given)


def test_models_that_are_not_here(tmp_path):
    assert "has no model" in refused("--models", tmp_path)
    assert "there is no model named nowhere.gguf" in refused("--models", "nowhere.gguf")
    assert "akunu models pull hf:owner/repository" in refused("--models", "hf:owner/repository")


@contextlib.contextmanager
def serving(*arguments):
    """A server in a process, and a client of it."""
    command = [sys.executable, "-m", "akunu_py", "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        url = re.search(r"http://127\.0\.0\.1:\d+", process.stderr.readline())[0]
        with httpx.Client(base_url=url, timeout=300, trust_env=False) as client:
            yield process, client
    finally:
        process.kill()
        process.communicate(timeout=300)


def ended(process, number):
    """What a process says after a signal."""
    process.send_signal(number)
    return process.communicate(timeout=300)[1]


def test_server_in_a_process(default_model, tmp_path):
    """It says where it listens, answers, and ends at Ctrl-C with its rows on disk."""
    rows = tmp_path / "rows"
    with serving(
        default_model, "--cache-memory", "100MB", "--cache-dir", rows,
        "--models", default_model.parent, "--idle-unload", "30m",
    ) as (process, client):  # fmt: skip
        body = {"messages": [{"role": "user", "content": "Hello " * 40}], "max_tokens": 4}
        names = [entry["id"] for entry in client.get("/v1/models").json()["data"]]
        assert names[0] == "akunu-tiny"
        assert "akunu-tiny-draft" in names
        for name in ("akunu-tiny", "akunu-tiny-draft"):
            reply = client.post("/v1/chat/completions", json=body | {"model": name})
            assert reply.status_code == 200, reply.text
        health = client.get("/health").json()
        assert health["status"] == "ok"
        assert health["loaded"] == ["akunu-tiny", "akunu-tiny-draft"]
        assert ended(process, signal.SIGINT) == ""
    assert process.returncode == 130
    assert len(list(rows.glob("rows-*/*.safetensors"))) == 2


@pytest.mark.slow
def test_kill_lets_a_stream_end_with_an_error(default_model):
    # Without the ids that end a reply, in turn, they take longer than replies that are under way
    # are given.
    body = {
        "prompt": "Hello", "max_tokens": 2000, "stream": True, "temperature": 1.5,
        "logit_bias": {"0": -100, "4": -100},
    }  # fmt: skip
    with serving(default_model) as (process, client):
        with contextlib.ExitStack() as stack:
            streams = []
            for seed in range(8):
                asked = client.stream("POST", "/v1/completions", json=body | {"seed": seed})
                streams.append(stack.enter_context(asked).iter_text())
                next(streams[-1])
            process.send_signal(signal.SIGTERM)
            said = ["".join(parts) for parts in streams]
        assert all("[DONE]" in one for one in said)
        assert any("the server is shutting down" in one for one in said)
        assert process.communicate(timeout=300)[1] == ""
    assert process.returncode == 143


@pytest.mark.slow
def test_second_interrupt_ends_at_once(default_model):
    # Such random text goes on for seconds.
    body = {
        "prompt": "Hello", "max_tokens": 2000, "stream": True, "seed": 1, "temperature": 1.5,
    }  # fmt: skip
    with (
        serving(default_model) as (process, client),
        client.stream("POST", "/v1/completions", json=body) as response,
    ):
        pieces = response.iter_text()  # kept: without it the connection would be closed
        next(pieces)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None
        assert ended(process, signal.SIGINT) == ""
    assert process.returncode == 130
