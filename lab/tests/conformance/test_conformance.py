"""akunu conformance: a server that keeps the rules, and others that break one each."""

import contextlib
import json
import re
import time
from types import SimpleNamespace

import pytest
import scripted_server
from click.testing import CliRunner
from obedient_model import SERVED, ObedientModel
from scripted_server import ScriptedBackend, running
from starlette.responses import JSONResponse, Response

from akunu_lab.conformance import prompts
from akunu_lab.conformance.client import Client
from akunu_lab.conformance.examined import examine
from akunu_lab.conformance.rows import ROWS, result_of
from akunu_py.cli.main import cli
from akunu_py.server.security import Access, digests
from akunu_py.system.errors import ConfigError

KEY = "0123456789-abcdef"
NOT_SEEN = {6, 21, 24}
"""Rows that are skipped where prompts are read at once."""


@pytest.fixture(autouse=True)
def a_busy_machine(monkeypatch):
    """Make no difference of how busy this machine is."""
    monkeypatch.setattr(prompts, "_FIRST_S", 300.0)
    monkeypatch.setattr(prompts, "_LIFE_S", 300.0)
    monkeypatch.setattr(prompts, "_SLOWER_S", 300.0)


def row(server, number, model=None):
    return result_of(ROWS[number - 1], examine(Client(server.url), model))


@contextlib.contextmanager
def serving(*mistakes, decide=None, **options):
    """A server whose model makes mistakes; `decide` answers requests in front of it, or does not."""
    make_app = scripted_server.make_app
    backend = ScriptedBackend(scripts=ObedientModel(*mistakes), served=(SERVED,))
    with pytest.MonkeyPatch.context() as patch:
        if decide is not None:
            patch.setattr(
                scripted_server, "make_app", lambda *parts: answering(decide)(make_app(*parts))
            )
        with running(backend, **options) as server:
            yield server


@pytest.fixture(scope="module")
def obedient():
    with serving() as server:
        yield server


def test_list_is_numbered():
    assert [one.number for one in ROWS] == list(range(1, 25))


@pytest.mark.parametrize("number", range(1, 25))
def test_row_of_a_server_that_keeps_the_rules(obedient, number):
    result = row(obedient, number)
    assert result.state == ("skipped" if number in NOT_SEEN else "passed"), result.reason
    if result.state == "skipped":
        assert result.reason


def test_rows_on_caches_are_skipped_where_usage_tells_of_none():
    with serving("no cache") as server:
        for number in (5, 18):
            assert row(server, number).state == "skipped"


def answering(decide):
    """A server in front of which `decide` may answer a request: of its method, path and body."""

    def wrapped(app):
        async def asgi(scope, receive, send):
            message = await receive()
            body = message.get("body", b"")
            while message.get("more_body"):
                message = await receive()
                body += message["body"]
            answer = decide(scope["method"], scope["path"], body)
            if answer is not None:
                await answer(scope, receive, send)
                return
            sent = False

            async def again():
                nonlocal sent
                if sent:
                    return await receive()
                sent = True
                return {"type": "http.request", "body": body, "more_body": False}

            await app(scope, again, send)

        return asgi

    return wrapped


def _chunked(*values):
    return Response(
        "".join(f"data: {json.dumps(value)}\n\n" for value in values),
        media_type="text/event-stream",
    )


def no_head(method, path, body):
    return Response(status_code=405) if method == "HEAD" else None


def old_list(method, path, body):
    value = {"object": "list", "data": [{"id": "tiny", "object": "model", "created": 1}]}
    return JSONResponse(value) if (method, path) == ("GET", "/v1/models") else None


def strict(method, path, body):
    error = {"type": "error", "error": {"type": "x", "message": "Extra inputs are not permitted"}}
    return JSONResponse(error, 400) if b"tomorrow" in body else None


def own_errors(method, path, body):
    wrong = path.startswith("/v1/") and method == "POST" and not body.endswith(b"}")
    return JSONResponse({"detail": "wrong"}, 422) if wrong else None


def images_break(method, path, body):
    return Response("Traceback", 500) if b"image/png" in body else None


def dotted_namespace(method, path, body):
    item = {"type": "function_call", "name": "mcp__one.ask", "arguments": "{}", "call_id": "c"}
    value = {"id": "r", "status": "completed", "output": [item], "usage": None}
    return JSONResponse(value) if b'"namespace"' in body else None


def no_thoughts(method, path, body):
    return JSONResponse({}, 400) if b"signature" in body else None


def names_twice(method, path, body):
    if b'"stream": true' not in body or b"tool_choice" not in body or "chat" not in path:
        return None
    part = {"index": 0, "id": "c", "function": {"name": "weather", "arguments": ""}}
    delta = {"choices": [{"delta": {"tool_calls": [part]}}]}
    return _chunked(delta, delta)


def bare_end(method, path, body):
    streamed = b'"stream": true' in body
    return _chunked({"choices": []}) if streamed else None


def slow(method, path, body):
    if len(body) > 2000:
        time.sleep(0.2)


MISTAKES = [
    ("system dropped", 4, "0 tokens longer"),
    ("system hoisted", 4, "after a system message at the end"),
    ("always calls", 10, "in spite of tool_choice none"),
    ("never calls", 10, "no call in spite of tool_choice"),
    ("any tool", 10, "weather was called instead of time"),
    ("wrong arguments", 9, "does not take"),
    ("cut unsaid", 11, "does not say that it was cut"),
    ("no grammar", 14, "'maybe'"),
    ("no overflow", 16, "too much"),
    ("no cache", 19, "0 cached tokens"),
    ("miscounts", 19, "tokens of prompt and reply"),
    ("no schema", 20, "does not fit the schema"),
    ("seedless", 23, "alone"),
    (no_head, 1, "HEAD /: 405"),
    (old_list, 2, "an entry lacks owned_by"),
    (strict, 3, "Extra inputs"),
    (strict, 15, "Extra inputs"),
    (names_twice, 9, "name of a call comes twice"),
    (images_break, 12, "a result that is an image: 500"),
    (dotted_namespace, 13, "'mcp__one.ask'"),
    (no_thoughts, 17, "400"),
    (bare_end, 8, "ends without"),
    (own_errors, 22, "has not the API's shape"),
    (slow, 6, "the first event came after"),
]
"""What a model does wrong, by name, or a server in front of it; the rule, and words of the result."""


@pytest.mark.parametrize(("mistake", "number", "words"), MISTAKES)
def test_mistakes_are_found(monkeypatch, mistake, number, words):
    given, decide = ((mistake,), None) if isinstance(mistake, str) else ((), mistake)
    if decide is slow:
        monkeypatch.setattr(prompts, "_FIRST_S", 0.1)
    with serving(*given, decide=decide) as server:
        result = row(server, number)
    assert result.state == "failed", result
    assert words in result.reason


def test_billing_block_that_is_kept(monkeypatch):
    from akunu_py.server import messages_api

    monkeypatch.setattr(messages_api, "_BILLING", "nothing begins so")
    with serving() as server:
        result = row(server, 5)
    assert result.state == "failed"
    assert re.search(r"with another cch \d+ of \d+ tokens", result.reason)


def test_clients_that_leave_and_are_not_noticed(monkeypatch):
    served = []
    now = 0.0

    def decide(method, path, body):
        nonlocal now
        if b"Count from" in body:
            served.append(path)
        if b"Say hello" in body and served:
            now += 6.0

    monkeypatch.setattr(prompts, "_SLOWER_S", 5.0)
    # A clock that only the requests move: how long they took before depends on the machine.
    monkeypatch.setattr(prompts, "time", SimpleNamespace(perf_counter=lambda: now))
    with serving(decide=decide) as server:
        result = row(server, 7)
    assert result.state == "failed"
    assert "clients had left" in result.reason


def test_apis_that_a_server_lacks():
    def chat_alone(method, path, body):
        if "/messages" in path or "/responses" in path:
            return JSONResponse({"error": "no"}, 404)
        entry = {"id": "tiny", "object": "model", "created": 1, "owned_by": "me"}
        return JSONResponse({"data": [entry]}) if path == "/v1/models" else None

    with serving(decide=chat_alone) as server:
        results = {number: row(server, number) for number in (1, 2, 3, 5, 9, 12, 13, 14, 15, 19)}
    assert {number for number, one in results.items() if one.state == "skipped"} == {
        1, 3, 5, 12, 13, 14, 15
    }  # fmt: skip
    assert all(one.state == "passed" for number, one in results.items() if number in {2, 9, 19})
    assert "no /v1/messages" in results[3].reason


def conformance(*arguments):
    return CliRunner().invoke(cli, ["conformance", *map(str, arguments)])


def test_command(obedient):
    result = conformance(obedient.url)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == " 1  passed  HEAD of /, /api/hello and /v1/models"
    assert lines[-1] == "21 passed, 0 failed, 3 skipped"


@pytest.mark.slow
def test_command_ends_with_1_where_a_rule_is_broken():
    backend = ScriptedBackend(served=(SERVED,))
    with running(backend) as server:
        result = conformance(server.url)
    assert result.exit_code == 1
    assert re.search(r"^10  failed  tool_choice: .*no call", result.stdout, re.MULTILINE)


@pytest.mark.slow
def test_json_and_a_key(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    keys.chmod(0o600)
    with serving(access=Access(key_digests=digests([KEY]))) as server:
        assert "give --api-key-file" in conformance(server.url).stderr
        result = conformance(server.url + "/v1", "--api-key-file", keys, "--json")
    assert result.exit_code == 0, result.output
    assert KEY not in result.output
    record = json.loads(result.stdout)
    assert [one["state"] for one in record["rows"]].count("passed") == record["passed"] == 21
    assert record["server"] == server.url
    assert record["model"] == "tiny"


@pytest.mark.slow
def test_akunu_with_its_smallest_model(default_model):
    """The rules that a model could break; `akunu conformance` has the others, in minutes.

    What `tool_choice` does to replies of this model is in tests/server/test_engine_backend.py.
    """
    from kept_worker import Worker

    from akunu_py.engine.engine import Engine
    from akunu_py.server.engine_backend import EngineBackend
    from akunu_py.server.prefix_cache import PrefixCache

    with Engine.load(default_model) as engine:
        worker = Worker(engine, parallel=4, places=32, cache=PrefixCache(1 << 28))
        worker.start()
        with running(EngineBackend(worker)) as server:
            examined = examine(Client(server.url), None)
            numbers = (9, 11, 13, 14, 19, 20, 23)
            results = [result_of(ROWS[number - 1], examined) for number in numbers]
        worker.close()
        # The toy writes calls in a format that cannot hold the grammar of a custom tool.
        expected = set() if engine.tool_use.holds_grammars else {14}
    assert {one.number for one in results if one.state != "passed"} == expected, results


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://a:b", "http://127.0.0.1:1"])
def test_no_server(url):
    with pytest.raises(ConfigError):
        examine(Client(url), None)
    assert conformance(url).exit_code == 2
