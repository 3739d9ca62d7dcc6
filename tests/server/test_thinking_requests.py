"""Thinking on and off over HTTP, with a model whose template has a switch."""

import pytest
from engine_server import serving
from toy_engine import PLAIN, THINK, ToyTokenizer, toy_engine

from akunu_py.values.generation_config import GenerationConfig

CHAT = "/v1/chat/completions"
SAID = [{"role": "user", "content": "what is the time of the day in the town of the queen?"}]
ASK = {"messages": SAID, "max_tokens": 4}
DEFAULTS = GenerationConfig(logit_bias=PLAIN)


@pytest.fixture(params=["enable_thinking", ""])
def served(request):
    tokenizer = ToyTokenizer(opens=True, switch=request.param)
    with toy_engine(tokenizer=tokenizer) as engine, serving(engine, defaults=DEFAULTS) as server:
        server.has_switch = bool(request.param)
        yield server


@pytest.mark.parametrize(
    ("path", "asked", "ignored"),
    [
        (CHAT, {"reasoning_effort": "none"}, "reasoning_effort"),
        (CHAT, {"thinking": {"type": "disabled"}}, "thinking"),
        ("/v1/responses", {"reasoning": {"effort": "none"}}, "reasoning.effort"),
        ("/v1/messages", {"thinking": {"type": "disabled"}}, "thinking"),
    ],
)
def test_thoughts_are_switched_off_in_every_format(served, path, asked, ignored):
    body = {"input": SAID, "max_output_tokens": 4} if "responses" in path else dict(ASK)
    usual = served.post(path, body)
    response = served.post(path, body | asked)
    assert response.status_code == 200, response.text
    assert "x-akunu-ignored" not in usual.headers
    if served.has_switch:
        assert "x-akunu-ignored" not in response.headers
    else:
        assert response.headers["x-akunu-ignored"] == ignored


def test_prompts_are_counted_as_they_are_written(served):
    tokenizer = served.backend._worker.engine.tokenizer
    ids = tokenizer.encode_chat(SAID, variables={"enable_thinking": False})
    assert THINK in ids
    counted = served.post(
        "/v1/messages/count_tokens", {"messages": SAID, "thinking": {"type": "disabled"}}
    ).json()
    assert counted["input_tokens"] == len(ids)
