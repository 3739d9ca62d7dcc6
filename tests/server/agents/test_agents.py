"""Agents of today: what they sent is read rightly; and the agents themselves.

The programs run where they are installed: on PATH, or where variables such as AKUNU_CODEX say.
Their only network is the loopback.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from forced_model import AFTER, DONE, NOTES, PATCH, TASK, THOUGHTS
from scripted_server import running

HERE = Path(__file__).resolve().parent
REQUESTS = {path.stem: json.loads(path.read_text()) for path in HERE.glob("requests/*.json")}
# Of Qwen Code 0.24.4; the branches of this schema overlap.
OF_QWEN = "tools.agent.parameters.properties.fork_turns.oneOf"
# Before a fixture takes all variables of akunu away.
PROGRAMS = {
    name: os.environ.get(f"AKUNU_{name.upper()}") or shutil.which(name)
    for name in ("aider", "claude", "cline", "codex", "opencode", "pi", "qwen")
}
# aider edits with texts.
CALLING = sorted(REQUESTS.keys() - {"aider"})


@pytest.fixture(scope="module")
def server():
    with running() as server:
        yield server


def read(server, agent):
    """Return the answer to a recorded request, and the request as the backend got it."""
    server.backend.requests.clear()
    recorded = REQUESTS[agent]
    response = server.post(recorded["path"], recorded["body"])
    assert response.status_code == 200, response.text
    return response, server.backend.request


def turns(request):
    """Return the conversation from the task on."""
    messages = list(request.messages)
    return messages[max(place for place, one in enumerate(messages) if one.role == "user") :]


def roles(request):
    return [message.role for message in turns(request)]


def test_there_is_a_request_of_each():
    assert set(REQUESTS) == {*PROGRAMS, "codex-catalog"}


@pytest.mark.parametrize("agent", CALLING)
def test_conversation(server, agent):
    _, request = read(server, agent)
    assert request.messages[0].role == "system"
    asked, *rest = turns(request)
    assert TASK in asked.text
    said = [message for message in rest if message.role == "assistant"]
    assert said[0].reasoning == THOUGHTS
    assert said[1].text == "Now I edit."
    results = [message for message in rest if message.role == "tool"]
    called = [call for message in said for call in message.tool_calls]
    assert len(results) == len(called) > 1
    assert NOTES.strip() in results[0].text
    assert {call.name for call in called} <= {tool.name for tool in request.tools}


def test_claude(server):
    response, request = read(server, "claude")
    # A list of agents, which Claude Code puts behind the task, is not hoisted to the beginning.
    assert roles(request) == [
        "user", "system", "assistant", "tool", "tool", "assistant", "tool"
    ]  # fmt: skip
    assert request.messages[-2].tool_calls[0].arguments["new_string"] == '"Good morning"'
    assert response.headers["x-akunu-ignored"] == "thinking.display"


@pytest.mark.parametrize("agent", ["codex", "codex-catalog"])
def test_codex(server, agent):
    response, request = read(server, agent)
    assert roles(request) == ["user", "assistant", "tool", "assistant", "tool"]
    said = [message.role for message in request.messages]
    assert said.index("user") == said.count("system") == 2  # instructions, and the developer's
    assert {"multi_agent_v1__close_agent", "multi_agent_v1__resume_agent"} < {
        tool.name for tool in request.tools
    }
    assert response.headers["x-akunu-ignored"] == "web_search"
    edit = request.messages[-2].tool_calls[0]
    if agent == "codex":
        assert edit.arguments["cmd"] == f"apply_patch <<'END'\n{PATCH}END"
    else:
        assert edit.arguments == {"input": PATCH}
        assert edit.name == "apply_patch"


@pytest.mark.parametrize("agent", ["cline", "opencode", "pi", "qwen"])
def test_chat_completions(server, agent):
    response, request = read(server, agent)
    assert roles(request) == [
        "user", "assistant", "tool", "tool", "assistant", "tool"
    ]  # fmt: skip
    assert "x-akunu-ignored" not in response.headers


def test_aider(server):
    response, request = read(server, "aider")
    assert roles(request) == ["user"]
    assert "x-akunu-ignored" not in response.headers


def without_network():
    """Return the command that leaves a program the loopback alone, or None if there is no right."""
    for command in (["unshare", "-n"], ["unshare", "-rn"]):
        if shutil.which("unshare") is None or shutil.which("ip") is None:
            return None
        probe = [*command, "ip", "link", "set", "lo", "up"]
        if subprocess.run(probe, check=False, capture_output=True).returncode == 0:
            return command
    return None


@pytest.mark.slow
@pytest.mark.parametrize("agent", REQUESTS)
def test_agent_reads_one_file_and_edits_another(agent, tmp_path, monkeypatch):
    name = agent.partition("-")[0]
    program, isolated = PROGRAMS[name], without_network()
    if program is None:
        pytest.skip(f"{name} is not installed, and AKUNU_{name.upper()} names no program")
    if isolated is None:
        pytest.skip("unshare -n is not allowed here, or ip is missing")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / name).symlink_to(Path(program).resolve())
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    command = [*isolated, sys.executable, HERE / "offline_run.py", agent, tmp_path]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["code"] == 0, result["errors"]
    assert result["edited"] == AFTER
    assert DONE in result["output"]
    path = REQUESTS[agent]["path"]
    asked = [record for record in result["requests"] if record["path"] == path]
    assert len(asked) >= 3 or agent == "aider"
    assert {record["status"] for record in result["requests"]} == {200}
    # A newer version may send fields that the recorded request lacks; none is to be refused.
    assert {record["ignored"] for record in asked} <= {"", "web_search", OF_QWEN}
