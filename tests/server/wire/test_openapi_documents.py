"""Requests that schemathesis makes from OpenAPI documents: never a 500, and answers valid by the document.

AKUNU_OPENAPI names documents, which are not shipped: AKUNU_OPENAPI=openapi.json:anthropic.json. AKUNU_REQUESTS
sets how many requests each path gets.
"""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from scripted_server import called, events_of
from wire_formats import BODIES

from akunu_py.values.reply_deltas import ContentDelta, ReasoningDelta

DOCUMENTS = os.environ.get("AKUNU_OPENAPI", "")
REQUESTS = int(os.environ.get("AKUNU_REQUESTS", "100"))

pytestmark = pytest.mark.skipif(not DOCUMENTS, reason="no documents; set AKUNU_OPENAPI")


def read_again(value: Any) -> Any:
    """A document without names of kinds that YAML reads as null, and with null where OpenAPI 3.0 says it."""
    if isinstance(value, list):
        return [read_again(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {name: read_again(one) for name, one in value.items() if (name, one) != ("type", None)}
    return {"anyOf": [made, {"type": "null"}]} if value.get("nullable") is True else made


def validator(document: dict[str, Any], form: dict[str, Any]):
    """What finds the errors of a value, of a form of a document; formats of texts do not count."""
    jsonschema_rs = pytest.importorskip("jsonschema_rs")
    return jsonschema_rs.Draft202012Validator(form | {"components": document["components"]})


def answers(document: dict[str, Any], path: str) -> dict[str, Any]:
    """The validators of a whole answer, an error, and events by type ("" for chunks)."""
    responses = document["paths"][path]["post"]["responses"]
    schemas = document["components"]["schemas"]
    found = {
        "whole": responses["200"]["content"]["application/json"]["schema"],
        "error": {"$ref": "#/components/schemas/ErrorResponse"},
    }
    stream = responses["200"]["content"].get("text/event-stream", {}).get("schema")
    kinds = schemas.get("ResponseStreamEvent", {}).get("anyOf", []) if "responses" in path else []
    for form in kinds or [stream] if stream else []:
        properties = schemas[form["$ref"].rpartition("/")[2]].get("properties", {})
        found |= dict.fromkeys(properties.get("type", {}).get("enum", [""]), form)
    return {name: validator(document, form) for name, form in found.items()}


def operations() -> Iterator[tuple[str, str]]:
    for file in filter(None, DOCUMENTS.split(os.pathsep)):
        for path in json.loads(Path(file).read_bytes())["paths"]:
            if f"/v1{path.removeprefix('/v1').partition('?')[0]}" in BODIES:
                yield file, path


@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
@pytest.mark.parametrize(("file", "path"), list(operations()))
def test_requests_of_a_document(server, backend, file, path, mode):
    schemathesis = pytest.importorskip("schemathesis")
    document = read_again(json.loads(Path(file).read_bytes()))
    document["paths"] = {path: {"post": document["paths"][path]["post"]}}
    [operation] = schemathesis.openapi.from_dict(document).get_all_operations()
    valid = answers(document, path)
    url = f"/v1{path.removeprefix('/v1')}"
    asked = BODIES[url.partition("?")[0]]
    rng = random.Random(f"{path} {mode}")
    # Anthropic's public document is older than its thinking.
    thoughts = [] if "messages" in path else [ReasoningDelta("t")]
    backend.play(called(("read", {"path": "x"}), before=[*thoughts, ContentDelta("Hi")]))
    statuses = set()

    def answer(case):
        body = json.loads(json.dumps(case.body, default=str))
        if isinstance(body, dict):
            body.pop("model", None)
            body |= asked if rng.random() < 0.6 else {}
            body |= {"stream": True} if rng.random() < 0.3 else {}
        response = server.post(url, body)
        statuses.add(response.status_code)
        assert response.status_code < 500, (body, response.text)
        if response.headers["content-type"].startswith("text/event-stream"):
            named = [event for _, event in events_of(response) if isinstance(event, dict)]
            found = [(event, valid.get(event.get("type", ""))) for event in named]
        else:
            form = "whole" if response.status_code == 200 else "error"
            found = [(response.json(), valid[form])]
        if mode == "NEGATIVE" and response.status_code == 200:
            return  # answers repeat fields as they were sent
        for value, one in found:
            errors = [] if one is None or "error" in value else list(one.iter_errors(value))
            assert not errors, (body, errors[0].message)

    generated = operation.ok().as_strategy(
        generation_mode=getattr(schemathesis.GenerationMode, mode)
    )
    run = given(generated)(answer)
    settings(
        max_examples=REQUESTS, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(seed(1)(run))()  # fmt: skip
    assert 200 in statuses
