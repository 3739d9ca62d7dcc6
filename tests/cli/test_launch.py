"""akunu launch: the agent's settings, the server it finds or starts, and how both end."""

import contextlib
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from free_ports import free_ports
from scripted_server import running

from akunu_py.cli.launch import local_server
from akunu_py.cli.launch.agents import AGENTS, shortage
from akunu_py.cli.main import cli
from akunu_py.server.security import Access, digests

KEY = "0123456789-abcdef"
FAKE = f"""#!{sys.executable}
import json, os, signal, sys, time, urllib.request

def record():
    with open(os.environ["RECORD"] + ".part", "w") as file:
        json.dump({{"arguments": sys.argv[1:], "variables": dict(os.environ), "seen": seen}}, file)
    os.rename(os.environ["RECORD"] + ".part", os.environ["RECORD"])

def interrupted(*_):
    seen.append(urllib.request.urlopen(os.environ["ANTHROPIC_BASE_URL"] + "/health").status)
    record()
    sys.exit(5)

seen = []
signal.signal(signal.SIGINT, interrupted)
record()
match os.environ.get("DO", "0"):
    case "wait":
        time.sleep(60)
    case "die":
        os.kill(os.getpid(), signal.SIGKILL)
    case code:
        sys.exit(int(code))
"""


@pytest.fixture
def agents(tmp_path, monkeypatch):
    """Programs on PATH that write down how they were started; returns a function that reads it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for agent in AGENTS.values():
        program = folder / agent.program
        program.write_text(FAKE)
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    record = tmp_path / "record.json"
    monkeypatch.setenv("RECORD", str(record))
    return lambda: json.loads(record.read_text())


@pytest.fixture(scope="module")
def server():
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def locked():
    with running(access=Access(key_digests=digests([KEY]))) as server:
        yield server


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "my keys"
    path.write_text(f"# of this machine\n\n  {KEY} \nanother-key-0123456789\n")
    path.chmod(0o600)
    return path


def launch(*arguments, code=0):
    result = CliRunner().invoke(cli, ["launch", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_claude(server, agents, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-the-user")
    launch("claude", "--port", server.port, "--", "-p", "Hi", "--", "x")
    variables = agents()["variables"]
    assert agents()["arguments"] == ["-p", "Hi", "--", "x"]
    assert variables["ANTHROPIC_BASE_URL"] == server.url
    assert variables["ANTHROPIC_API_KEY"] == ""
    assert variables["ANTHROPIC_MODEL"] == variables["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == "tiny"
    assert variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "4096"
    assert variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "1024"


def test_codex(server, agents):
    launch("codex", "--port", server.port, "--", "exec", "Hi")
    arguments = agents()["arguments"]
    assert arguments[-2:] == ["exec", "Hi"]
    assert set(arguments[:-2:2]) == {"-c"}
    assert set(arguments[1:-2:2]) == {
        'model="tiny"', 'model_provider="akunu"', "model_context_window=4096",
        'model_providers.akunu.name="akunu"', 'model_providers.akunu.wire_api="responses"',
        f'model_providers.akunu.base_url="{server.url}/v1"',
    }  # fmt: skip
    assert "AKUNU_API_KEY" not in agents()["variables"]


def test_opencode(server, agents):
    launch("opencode", "--port", server.port)
    assert agents()["arguments"] == []
    config = json.loads(agents()["variables"]["OPENCODE_CONFIG_CONTENT"])
    assert config["model"] == config["small_model"] == "akunu/tiny"
    assert config["provider"]["akunu"]["options"] == {"baseURL": f"{server.url}/v1"}
    assert config["provider"]["akunu"]["models"] == {
        "tiny": {"name": "tiny", "limit": {"context": 4096, "output": 1024}}
    }


def test_qwen(server, agents):
    launch("qwen", "--port", server.port, "--", "Hi")
    assert agents()["arguments"] == ["--auth-type", "openai", "Hi"]
    variables = agents()["variables"]
    assert variables["OPENAI_BASE_URL"] == f"{server.url}/v1"
    assert variables["OPENAI_MODEL"] == "tiny"


def test_requests_go_past_a_proxy(server, agents, monkeypatch):
    for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    launch("codex", "--port", server.port)
    assert "NO_PROXY" not in agents()["variables"]
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "intranet")
    launch("codex", "--port", server.port)
    assert agents()["variables"]["NO_PROXY"] == "intranet,127.0.0.1"
    assert agents()["variables"]["no_proxy"] == "intranet,127.0.0.1"


@pytest.mark.parametrize("agent", AGENTS)
def test_key_is_in_the_environment_alone(locked, agents, agent, key_file):
    launch(agent, "--port", locked.port, "--api-key-file", key_file)
    record = agents()
    assert KEY in record["variables"].values()
    assert KEY not in json.dumps(record["arguments"])


@pytest.mark.parametrize("agent", AGENTS)
def test_printed_lines_start_the_agent_in_the_same_way(locked, agents, agent, key_file):
    arguments = (agent, "--port", locked.port, "--api-key-file", key_file)
    launch(*arguments, "--", "say 'hi'", "$HOME")
    started = agents()
    printed = launch(*arguments, "--print", "--", "say 'hi'", "$HOME").output
    assert KEY not in printed
    subprocess.run(["sh", "-c", printed], check=True)
    pasted = agents()
    before, after = started.pop("variables"), pasted.pop("variables")
    assert pasted == started
    # A shell has variables of its own.
    own = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert own <= {"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES"}


def test_print_starts_nothing(agents, monkeypatch, default_model):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(local_server, "find_server", lambda *_: None)
    output = launch("claude", default_model, "--context", 2048, "--print").output
    first, *lines = output.splitlines()
    assert f"akunu serve {default_model} --context 2048 --port 8080" in first
    assert first.startswith("#")
    assert "ANTHROPIC_MODEL=akunu-tiny \\" in lines
    assert "CLAUDE_CODE_MAX_CONTEXT_TOKENS=2048 \\" in lines
    assert lines[-1] == "claude"
    said = launch("claude", default_model, "--context", 2049, "--print", code=2).output
    assert "--context is 2049; this model allows 2 to 2048 tokens" in said


def test_missing_program(server, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    for name, agent in AGENTS.items():
        assert agent.install in launch(name, "--port", server.port, code=1).stderr


def test_missing_and_wrong_key(locked, agents, tmp_path):
    assert "give --api-key-file FILE" in launch("codex", "--port", locked.port, code=2).stderr
    wrong = tmp_path / "wrong"
    wrong.write_text("not-the-servers-key\n")
    wrong.chmod(0o600)
    said = launch("codex", "--port", locked.port, "--api-key-file", wrong, code=2).stderr
    assert "refuses this key" in said
    assert "not-the-servers-key" not in said


def test_model_that_is_not_served(server, agents, default_model):
    launch("codex", "tiny", "--port", server.port)
    for model in (default_model, "unknown"):
        said = launch("codex", model, "--port", server.port, code=2).stderr
        assert "serves tiny, not " in said
    assert "a context of 4096" in launch(
        "codex", "--context", 5000, "--port", server.port, code=2
    ).stderr  # fmt: skip
    launch("codex", "--context", 4096, "--port", server.port)


def test_settings_do_not_refuse_a_running_server(server, agents, default_model, monkeypatch):
    monkeypatch.setenv("AKUNU_MODEL", str(default_model))
    monkeypatch.setenv("AKUNU_CONTEXT", "1000")
    launch("codex", "--port", server.port)
    assert 'model="tiny"' in agents()["arguments"]


class _Other(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def other_program(status, body):
    with http.server.HTTPServer(("127.0.0.1", 0), _Other) as other:
        other.status, other.body = status, body
        thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield other.server_address[1]
        other.shutdown()
        thread.join()


OTHERS = [
    (200, b"<html>"), (404, b""), (401, b"{}"), (403, b"[]"), (200, b"[]"), (200, b"{}"),
    (200, b'{"build_info": "b4000-abc", "model_alias": "x"}'),
    (200, b'{"build_info": "akunu 1"}'),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body"), OTHERS)
def test_another_program_at_the_port(agents, status, body):
    with other_program(status, body) as port:
        said = launch("codex", "--port", port, code=2).stderr
        assert f"the program at http://127.0.0.1:{port}" in said
        assert "give another --port" in said


def test_another_program_at_the_usual_port(agents, monkeypatch):
    asked = []

    def find(port, *_):
        asked.append(port)
        raise local_server.OtherProgramError("the program there is not akunu")

    @contextlib.contextmanager
    def started(arguments, port, key):
        asked.append(port)
        yield local_server.LocalServer(local_server.address(port), "tiny", 4096, key)

    monkeypatch.setattr(local_server, "find_server", find)
    monkeypatch.setattr(local_server, "started_server", started)
    launch("claude")
    assert asked[0] == 8080
    assert agents()["variables"]["ANTHROPIC_BASE_URL"] == f"http://127.0.0.1:{asked[1]}"
    assert asked[1] != 8080


@pytest.mark.slow
def test_server_that_cannot_start(agents, tmp_path):
    """Its own words are shown; and it gets the model that was given, whatever the folder has."""
    (tmp_path / "bad.gguf").write_bytes(b"not a model")
    (port,) = free_ports(1)
    said = launch("claude", tmp_path / "bad.gguf", "--port", port, code=1)
    assert "the server ended with code" in said.stderr
    assert "bad.gguf" in said.stderr


def _wait_for_the_end_of(port):
    """Return once nobody listens at a port; a server that stays fails the test after five minutes."""
    for _ in range(3000):
        with contextlib.suppress(ConnectionResetError):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
            except ConnectionRefusedError:
                return
        time.sleep(0.1)
    pytest.fail("the server runs on")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_session_with_its_own_server(agents, default_model, tmp_path, monkeypatch, number):
    """Ctrl-C reaches the agent and not the server, which ends with the agent; so does kill.

    After kill -9 of `akunu launch` the agent lives on, and the server ends by itself.
    """
    monkeypatch.setenv("DO", "wait")
    (tmp_path / "json.py").write_text("raise RuntimeError('imported from the folder')")
    (port,) = free_ports(1)
    command = [
        sys.executable, "-P", "-m", "akunu_py", "launch", "claude", str(default_model),
        "--port", str(port), "--context", "512",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, start_new_session=True, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        while not Path(os.environ["RECORD"]).exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        assert agents()["variables"]["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "512"
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        process.wait(300)
        if number == signal.SIGKILL:
            _wait_for_the_end_of(port)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        said = process.communicate()[1]
    codes = {signal.SIGINT: 5, signal.SIGTERM: 128 + number, signal.SIGKILL: -number}
    assert process.returncode == codes[number], said
    assert agents()["seen"] == ([200] if number == signal.SIGINT else [])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def small(context, trained):
    return local_server.LocalServer("http://127.0.0.1:1", "tiny", context, trained=trained)


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_a_context_that_is_too_small_is_told_with_what_would_do(agent):
    """A larger one as far as the model has more, else another model."""
    wanted = agent.context
    assert agent.sends < wanted
    said = shortage(agent, small(wanted - 1, wanted))
    assert f"{agent.sends:,} tokens" in said
    assert f"a context of {wanted - 1:,}: start the server with --context {wanted}," in said
    said = shortage(agent, small(2048, wanted - 1))
    assert "--context" not in said
    assert f"no more than {wanted - 1:,}, so choose one with a context of {wanted:,}" in said
    assert f"--context {wanted}" in shortage(agent, small(2048, None))
    assert shortage(agent, small(wanted, wanted)) == shortage(agent, small(None, None)) == ""


def test_the_warning_comes_before_the_agent_starts(server, agents, monkeypatch):
    said = launch("claude", "--port", server.port).stderr
    assert "tokens before the first question, and tiny is served with a context of 4,096" in said
    printed = launch("claude", "--port", server.port, "--print").stdout
    assert printed.startswith("# Claude Code sends up to 17,800 tokens")
    monkeypatch.setattr(local_server, "find_server", lambda *_: small(262_144, 262_144))
    assert "sends up to" not in launch("claude", "--port", server.port).stderr


def test_the_most_of_a_model_that_no_server_has_yet(monkeypatch, default_model):
    monkeypatch.setattr(local_server, "find_server", lambda *_: None)
    printed = launch("codex", default_model, "--print").stdout
    assert "is served with a context of 2,048: the model has no more than 2,048" in printed
    assert "model_context_window=2048" in printed
