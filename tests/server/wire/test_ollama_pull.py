"""/api/pull: the real library in its child process, against a hub on this machine."""

import asyncio
import hashlib
import json
import os
import socket
import threading
from types import SimpleNamespace

import pytest
from scripted_server import PATIENCE_S

from akunu_py.server import pulls
from akunu_py.server.pulls import Pulls
from akunu_py.system.errors import ModelFormatError

PULL = "/api/pull"
LARGE = os.urandom(2**20)
DIGEST = hashlib.sha256(LARGE).hexdigest()


@pytest.fixture
def pulling(server, hub, hub_cache, monkeypatch):
    """A server that fetches from a hub with the model o/r; `adopted` are names and paths."""
    for name, value in {
        "HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(hub_cache), "HF_HUB_OFFLINE": "0",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    hub.add("o/r", {"m.gguf": LARGE, "config.json": b"{}"})
    adopted = []
    server.service.pulls = Pulls(lambda *one: adopted.append(one))
    yield SimpleNamespace(server=server, hub=hub, adopted=adopted, pulls=server.service.pulls)
    server.service.pulls = None


def steps_of(response):
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


def until(condition):
    """Wait for what another thread or process does."""
    waited = threading.Event()
    for _ in range(PATIENCE_S * 100):
        if condition():
            return
        waited.wait(0.01)
    raise AssertionError("it did not come to that")


def under_way(pulling):
    return list(pulling.pulls._running.values())


def test_without_allow_pull_nothing_is_fetched(server):
    response = server.post(PULL, {"model": "smollm2"})
    assert response.status_code == 403
    assert "--allow-pull; run akunu models pull" in response.json()["error"]


def test_the_steps_of_a_fetch(pulling, hub_cache):
    first, *files, verifying, last = steps_of(pulling.server.post(PULL, {"model": "hf:o/r:latest"}))
    assert (first, last) == ({"status": "pulling manifest"}, {"status": "success"})
    assert verifying == {"status": "verifying sha256 digest"}
    assert files[-1] == {
        "status": f"pulling {DIGEST[:12]}", "digest": f"sha256:{DIGEST}", "total": len(LARGE),
        "completed": len(LARGE),
    }  # fmt: skip
    [(name, path)] = pulling.adopted
    assert name == "hf:o/r"
    assert path.read_bytes() == LARGE
    assert path.is_relative_to(hub_cache)
    # What is here is not fetched again.
    pulling.hub.forget()
    whole = pulling.server.post(PULL, {"name": "hf.co/o/r", "stream": False})
    assert (whole.status_code, whole.json()) == (200, {"status": "success"})
    assert (pulling.hub.fetched, pulling.adopted[-1]) == ([], ("hf.co/o/r", path))


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("/etc/passwd", 400, "there is no model '/etc/passwd' to fetch"),
        ("../x.gguf", 400, "to fetch"),
        ("hf:../../x", 400, "is not a model on the hub"),
        ("qwen3:5b", 400, "Did you mean qwen3:"),
        ("", 400, "qwen3:4b"),
        # In a stream that has begun.
        ("hf:o/absent", None, "the hub has no repository o/absent"),
        ("hf:o/r:" + "Q" * 400, 400, "give a shorter one"),
        ("hf:o/r:Q2_K", 400, "o/r has no Q2_K"),
        ("hf:o/broken", 502, "cannot be fetched"),
    ],
)
def test_what_cannot_be_fetched(pulling, tmp_path, monkeypatch, name, status, said):
    monkeypatch.chdir(tmp_path)
    pulling.hub.statuses["models/o/broken"] = 500
    answer = pulling.server.post(PULL, {"model": name, "stream": not status})
    assert answer.status_code == (status or 200)
    assert said in json.loads(answer.text.splitlines()[-1])["error"]
    assert pulling.adopted == []


def test_a_file_of_that_name_is_not_looked_at(pulling, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answers = []
    for _ in range(2):
        answers.append(pulling.server.post(PULL, {"model": "here.gguf"}).json())
        (tmp_path / "here.gguf").touch()
    assert answers[0] == answers[1]


@pytest.mark.parametrize("here", [False, True])
def test_what_was_fetched_and_cannot_be_served(pulling, hub_cache, here):
    """It is deleted, unless it was here before."""
    if here:
        pulling.server.post(PULL, {"model": "hf:o/r"})

    def refuse(_name, path):
        raise ModelFormatError(f"{path}: it is no GGUF file")

    pulling.server.service.pulls = Pulls(refuse)
    *_, last = steps_of(pulling.server.post(PULL, {"model": "hf:o/r"}))
    assert last == {"error": "hf:o/r was fetched, and cannot be served: m.gguf: it is no GGUF file"}
    for place in ("snapshots/*/m.gguf", f"blobs/{DIGEST}"):
        assert bool(list(hub_cache.glob(f"models--o--r/{place}"))) == here


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("the disk of /home/u v/.cache/hub is full", "the disk of hub is full"),
        ("'/a/b.gguf' and /c: no", "'b.gguf' and c: no"),
        ("o/r has no Q2; see https://hub/o/r/x or and/or", "o/r has no Q2; see https://hub/o/r/x or and/or"),
    ],
)  # fmt: skip
def test_folders_are_not_told(reason, told):
    assert pulls._FOLDERS.sub("", reason) == told


def follow(pulling, lines, body=None):
    """Ask for o/r in a thread, and collect the lines; return the thread."""

    def read():
        ask = {"model": "hf:o/r"} | (body or {})
        with pulling.server.client.stream("POST", PULL, json=ask) as response:
            lines.extend(json.loads(line) for line in response.iter_lines())

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def test_those_who_ask_for_the_same_share_a_fetch(pulling):
    pulling.hub.holds["m.gguf"] = len(LARGE) // 2
    found = [], []
    threads = [follow(pulling, found[0])]
    assert pulling.hub.held.wait(PATIENCE_S)
    threads.append(follow(pulling, found[1], {"model": "o/r/m.gguf"}))
    threads.append(follow(pulling, found[1]))
    until(lambda: sum(pull.followers for pull in under_way(pulling)) == 3)
    # Replies go on meanwhile.
    assert pulling.server.get("/api/version").status_code == 200
    pulling.hub.release.set()
    for thread in threads:
        thread.join()
    assert found[0][-1] == {"status": "success"}
    assert found[1].count({"status": "success"}) == 2
    assert [asked.range for asked in pulling.hub.asked_for("m.gguf")] == [""]


def test_with_a_fetch_the_programs_end_that_it_started(monkeypatch, tmp_path):
    """Such as a package client; one that lived on would send a word."""
    program = "import socket, sys, time; port = int(sys.argv[1]); "
    program += (
        "held = socket.create_connection(('127.0.0.1', port)); time.sleep(5); held.send(b'x')"
    )
    script = tmp_path / "fetch.py"
    script.write_text(
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {program!r}, sys.argv[1]])\n"
    )
    monkeypatch.setattr(pulls.pull_child, "__file__", str(script))

    async def fetch_and_leave(port):
        pull = pulls.Pull(str(port))
        other, _ = await asyncio.to_thread(listening.accept)
        pull.task.cancel()
        await asyncio.wait({pull.task})
        return other

    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        asyncio.run(fetch_and_leave(listening.getsockname()[1])) as other,
    ):
        assert other.recv(1) == b""


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_it(pulling, hub_cache, stream):
    pulling.hub.holds["m.gguf"] = len(LARGE) // 2
    body = json.dumps({"model": "hf:o/r", "stream": stream}).encode()
    with pulling.server.socket() as connection:
        connection.sendall(
            b"POST /api/pull HTTP/1.1\r\nHost: localhost\r\ncontent-length: %d\r\n\r\n%s"
            % (len(body), body)
        )
        assert pulling.hub.held.wait(PATIENCE_S)
        [pull] = under_way(pulling)
    until(pull.task.done)
    assert (pull.task.cancelled(), under_way(pulling), pulling.adopted) == (True, [], [])
    assert len(list(hub_cache.glob("*/blobs/*.incomplete"))) == 1


def test_the_end_of_the_server_ends_it(pulling):
    pulling.hub.holds["m.gguf"] = len(LARGE) // 2
    lines = []
    thread = follow(pulling, lines)
    assert pulling.hub.held.wait(PATIENCE_S)
    [pull] = under_way(pulling)
    pull.task.get_loop().call_soon_threadsafe(pulling.pulls.stop)
    thread.join()
    assert lines[-1] == {"error": "the server ends; ask again later"}


def test_only_few_are_fetched_at_once(pulling):
    pulling.server.service.pulls = Pulls(print, most=0)
    refused = pulling.server.post(PULL, {"model": "hf:o/r", "stream": False})
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) > 0
