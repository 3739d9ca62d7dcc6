"""pydantic-ai over both of OpenAI's APIs: a turn with two tools and its answer."""

import asyncio

import pytest
from scripted_server import called, said


@pytest.fixture(scope="module", autouse=True)
def packages():
    """Imported in the worker that has these tests alone: it takes a second."""
    pytest.importorskip("httpx2", reason="pydantic-ai-slim[openai] brings httpx2")
    pytest.importorskip("pydantic_ai", reason="pydantic-ai-slim[openai] is not installed")


# Without a text before the calls, which run_stream would take for the answer.
TWO_CALLS = called(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))


def agent_of(server, api, client):
    import pydantic_ai
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key="local", http_client=client)
    kind = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
    agent = pydantic_ai.Agent(kind("tiny", provider=provider))

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return agent


async def asked(server, api, stream):
    import httpx2

    # A client of the test's own: the library's stays open.
    async with httpx2.AsyncClient() as client:
        agent = agent_of(server, api, client)
        if not stream:
            return (await agent.run("1+2? 3+4?")).output
        async with agent.run_stream("1+2? 3+4?") as result:
            pieces = [piece async for piece in result.stream_text(delta=True)]
        return "".join(pieces)


@pytest.mark.slow
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_two_tools_and_the_answer(server, backend, api, stream):
    backend.play(TWO_CALLS, said("3 and", " 7"))
    assert asyncio.run(asked(server, api, stream)) == "3 and 7"
    conversation = [
        (message.role, message.text, [dict(one.arguments) for one in message.tool_calls])
        for message in backend.request.messages
    ]
    assert conversation == [
        ("user", "1+2? 3+4?", []),
        ("assistant", "", [{"a": 1, "b": 2}, {"a": 3, "b": 4}]),
        ("tool", "3", []),
        ("tool", "7", []),
    ]
    assert backend.request.tools[0].name == "add"
