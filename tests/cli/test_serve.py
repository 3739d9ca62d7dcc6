"""akunu serve: its options, what it refuses before a model is loaded, and a run in a process."""

import os
import re
import signal
import socket
import subprocess
import sys

import httpx
import pytest
from click.testing import CliRunner

from akunu_py.cli.main import cli
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

    monkeypatch.setattr("akunu_py.cli.serve.load_engine", load)


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
    ("option", "value"),
    [("--port", "70000"), ("--parallel", "0"), ("--queue", "-1"), ("--allowed-origin", "*")],
)
def test_options_out_of_range(option, value):
    assert value in refused(option, value)


def test_listening_on_a_free_port():
    with running.listen("127.0.0.1", 0) as one, running.listen("localhost", 0) as other:
        assert one.getsockname()[1] != other.getsockname()[1]


def test_server_in_a_process(default_model, tmp_path):
    """It says where it listens, answers, and ends at Ctrl-C with its rows on disk."""
    command = [
        sys.executable, "-m", "akunu_py", "serve", str(default_model), "--port", "0",
        "--cache-memory", "100MB", "--cache-dir", str(tmp_path / "rows"),
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        line = process.stderr.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+", line)[0]
        body = {"messages": [{"role": "user", "content": "Hello " * 40}], "max_tokens": 4}
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
            reply = client.post("/v1/chat/completions", json=body)
            assert reply.status_code == 200, reply.text
            assert client.get("/health").json()["status"] == "ok"
    finally:
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=30)
    assert "Traceback" not in rest
    assert process.returncode in {0, 130}
    assert list((tmp_path / "rows").rglob("*.safetensors"))
