"""Real clients: a turn with two tools and its answer, streamed and not, and each API's errors."""

import asyncio
import json

import pytest
from scripted_server import ACCEPTED, EMBEDDER, MODEL, USAGE, Pause, called, thought

from akunu_py.server.events import Finished
from akunu_py.system.errors import ContextOverflowError, ServerBusyError
from akunu_py.values.reply_deltas import ContentDelta, ReasoningDelta

KEY = "sk-none-of-ours-is-needed"
ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
TWO_CALLS = called(
    ("add", {"a": 1, "b": 2}),
    ("add", {"a": 3, "b": 4}),
    before=[ReasoningDelta("Both."), ContentDelta("Adding.")],
)
ANSWER = thought("So.", "3 and", " 7")


# Their import takes a second each: in the worker that has these tests, and no other.
@pytest.fixture(scope="module")
def openai():
    import openai

    return openai


@pytest.fixture(scope="module")
def anthropic():
    import anthropic

    return anthropic


@pytest.fixture(scope="module")
def ollama():
    return pytest.importorskip("ollama", reason="not installed; pip install ollama")


@pytest.fixture
def ollama_client(server, ollama):
    with ollama.Client(host=server.url) as client:
        yield client


@pytest.fixture
def client(server, openai):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def claude(server, anthropic):
    with anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0) as client:
        yield client


def added(arguments):
    values = json.loads(arguments) if isinstance(arguments, str) else arguments
    return str(values["a"] + values["b"])


def history(backend):
    """The last request in short: role, text, calls."""
    return [
        (message.role, message.text, [dict(one.arguments) for one in message.tool_calls])
        for message in backend.request.messages
    ]


EXPECTED = [
    ("user", "1+2? 3+4?", []),
    ("assistant", "Adding.", [{"a": 1, "b": 2}, {"a": 3, "b": 4}]),
    ("tool", "3", []),
    ("tool", "7", []),
]


@pytest.mark.parametrize("stream", [False, True])
def test_openai_chat(client, backend, stream):
    backend.play(TWO_CALLS, ANSWER)
    tools = [{"type": "function", "function": {"name": "add", "parameters": ADD}}]
    messages = [{"role": "user", "content": "1+2? 3+4?"}]

    def ask():
        asked = {"model": "tiny", "messages": messages, "tools": tools}
        if not stream:
            return client.chat.completions.create(**asked)
        asked["stream_options"] = {"include_usage": True}
        with client.chat.completions.stream(**asked) as events:
            return events.get_final_completion()

    first = ask()
    assert first.choices[0].finish_reason == "tool_calls"
    message = first.choices[0].message
    assert message.reasoning_content == "Both."
    messages.append(message.model_dump())
    messages.extend(
        {"role": "tool", "tool_call_id": one.id, "content": added(one.function.arguments)}
        for one in message.tool_calls
    )
    second = ask()
    assert second.choices[0].message.content == "3 and 7"
    assert second.usage.prompt_tokens_details.cached_tokens == 20
    assert history(backend) == EXPECTED
    assert backend.request.messages[1].reasoning == "Both."


@pytest.mark.parametrize("stream", [False, True])
def test_openai_responses(client, backend, stream):
    backend.play(TWO_CALLS, ANSWER)
    tools = [{"type": "function", "name": "add", "parameters": ADD, "strict": True}]
    items = [{"role": "user", "content": "1+2? 3+4?"}]

    def ask():
        asked = {"model": "tiny", "input": items, "tools": tools, "store": False}
        if not stream:
            return client.responses.create(**asked, include=["reasoning.encrypted_content"])
        with client.responses.stream(**asked) as events:
            return events.get_final_response()

    first = ask()
    calls = [item for item in first.output if item.type == "function_call"]
    assert [item.type for item in first.output] == [
        "reasoning", "message", "function_call", "function_call"
    ]  # fmt: skip
    items += [item.model_dump(exclude_none=True) for item in first.output]
    items += [
        {"type": "function_call_output", "call_id": one.call_id, "output": added(one.arguments)}
        for one in calls
    ]
    second = ask()
    assert second.output_text == "3 and 7"
    assert second.usage.input_tokens_details.cached_tokens == 20
    assert second.usage.output_tokens_details.reasoning_tokens == 4
    assert history(backend) == EXPECTED
    assert backend.request.messages[1].reasoning == "Both."


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic(claude, backend, stream):
    backend.play(TWO_CALLS, ANSWER)
    tools = [{"name": "add", "input_schema": ADD}]
    messages = [{"role": "user", "content": "1+2? 3+4?"}]

    def ask():
        asked = {"model": "tiny", "max_tokens": 100, "messages": messages, "tools": tools}
        if not stream:
            return claude.messages.create(**asked)
        with claude.messages.stream(**asked) as events:
            return events.get_final_message()

    first = ask()
    assert first.stop_reason == "tool_use"
    assert [block.type for block in first.content] == ["thinking", "text", "tool_use", "tool_use"]
    messages.append(
        {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in first.content]}
    )
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": added(block.input)}
        for block in first.content
        if block.type == "tool_use"
    ]
    messages.append({"role": "user", "content": results})
    second = ask()
    assert second.content[-1].text == "3 and 7"
    assert second.usage.input_tokens == 10
    assert second.usage.cache_read_input_tokens == 20
    assert history(backend) == EXPECTED
    assert backend.request.messages[1].reasoning == "Both."


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_runner_sends_the_whole_conversation(claude, backend, anthropic, stream):
    """It would have the server keep the conversation, and sends it once that is refused."""

    @anthropic.beta_tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    backend.play(TWO_CALLS, ANSWER)
    asked = [{"role": "user", "content": "1+2? 3+4?"}]
    runner = claude.beta.messages.tool_runner(
        model="tiny", max_tokens=100, messages=asked, tools=[add], stream=stream
    )
    assert runner.until_done().content[-1].text == "3 and 7"
    assert history(backend) == EXPECTED
    assert [tool.name for tool in backend.request.tools] == ["add"]


def test_other_calls_of_the_sdks(client, claude, backend):
    assert client.completions.create(model="tiny", prompt="Hi").choices[0].text == "Hello world"
    assert [model.id for model in client.models.list()] == ["tiny", "claude-akunu-tiny"]
    assert client.models.retrieve("tiny").owned_by == "akunu"
    assert [model.display_name for model in claude.models.list()] == ["Tiny Model"] * 2
    assert claude.models.retrieve("tiny").created_at.year == 2023
    counted = claude.messages.count_tokens(
        model="tiny", messages=[{"role": "user", "content": "Hi"}]
    )
    assert counted.input_tokens == 2


def test_errors_of_openai(client, backend, openai):
    ask = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
    backend.play([ContextOverflowError("x", num_tokens=9, context=5)])
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**ask)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="tiny", input="x")
    assert caught.value.code == "context_length_exceeded"
    backend.refusal = ServerBusyError("busy", retry_after_s=3)
    with pytest.raises(openai.InternalServerError, match="busy"):
        client.chat.completions.create(**ask)
    backend.refusal = None
    with pytest.raises(openai.NotFoundError, match="tiny"):
        client.chat.completions.create(**ask | {"model": "other"})


def test_kept_responses_with_openais_client(client, backend, openai):
    backend.play(ANSWER)
    first = client.responses.create(model="tiny", input="1+2? 3+4?")
    with client.responses.stream(
        model="tiny", input="Sure?", previous_response_id=first.id
    ) as events:
        second = events.get_final_response()
    assert [one.text for one in backend.request.messages] == ["1+2? 3+4?", "3 and 7", "Sure?"]
    assert client.responses.retrieve(second.id).output_text == second.output_text
    counted = client.responses.input_tokens.count(
        model="tiny", input="Sure?", previous_response_id=first.id
    )
    assert counted.input_tokens == sum(len(one.text) for one in backend.request.messages)
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match="not kept"):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="tiny", input="x", previous_response_id=second.id)
    assert caught.value.code == "previous_response_not_found"


def test_late_errors_of_openai(client, backend, openai):
    ask = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    backend.play([ACCEPTED, ContentDelta("Hello"), RuntimeError("x")])
    stream = client.chat.completions.create(**ask)
    with pytest.raises(openai.APIError, match="akunu failed"):
        list(stream)
    events = list(client.responses.create(model="tiny", input="x", stream=True))
    assert events[-1].type == "response.failed"


def test_errors_of_anthropic(claude, backend, anthropic):
    ask = {"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    backend.play([ContextOverflowError("x", num_tokens=9, context=5)])
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: 9 tokens > 5 maximum"):
        claude.messages.create(**ask)
    backend.refusal = ServerBusyError("busy", retry_after_s=3)
    with pytest.raises(anthropic.APIStatusError, match="busy") as caught:
        claude.messages.create(**ask)
    assert caught.value.status_code == 503
    backend.refusal = None
    backend.play([ACCEPTED, ContentDelta("Hello"), RuntimeError("x")])
    with pytest.raises(anthropic.APIStatusError, match="akunu failed"):
        list(claude.messages.create(**ask, stream=True))


def test_stream_left_early_is_cancelled(client, backend):
    backend.play([ACCEPTED, ContentDelta("Hello"), Pause()])
    ask = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
    with client.chat.completions.create(**ask, stream=True) as stream:
        for _ in range(2):
            next(iter(stream))
        assert not backend.cancelled.is_set()
    assert backend.cancelled.wait(300)


def test_thirty_two_streams_at_once(server, backend, openai):
    backend.scripts = lambda request: [
        ACCEPTED, Pause(0.01), ContentDelta(request.messages[0].text), Finished("stop", USAGE)
    ]  # fmt: skip

    async def ask(client, number):
        stream = await client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": f"n{number}"}], stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def all_of_them():
        url = f"{server.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(32)))

    assert asyncio.run(all_of_them()) == [f"n{number}" for number in range(32)]


@pytest.mark.slow
def test_langchain(server, backend):
    langchain_openai = pytest.importorskip("langchain_openai")
    from langchain_core.messages import HumanMessage, ToolMessage

    chat = langchain_openai.ChatOpenAI(base_url=f"{server.url}/v1", api_key=KEY, model="tiny")
    tool = {"type": "function", "function": {"name": "add", "parameters": ADD}}
    bound = chat.bind_tools([tool])
    question = HumanMessage("1+2? 3+4?")
    for stream in (False, True):
        backend.play(TWO_CALLS, ANSWER)
        if stream:
            first = None
            for chunk in bound.stream([question]):
                first = chunk if first is None else first + chunk
        else:
            first = bound.invoke([question])
        assert [one["name"] for one in first.tool_calls] == ["add", "add"]
        assert [one["args"] for one in first.tool_calls] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
        results = [
            ToolMessage(added(one["args"]), tool_call_id=one["id"]) for one in first.tool_calls
        ]
        assert bound.invoke([question, first, *results]).content == "3 and 7"
        assert history(backend) == EXPECTED


def test_llm(server, backend, tmp_path, monkeypatch):
    """simonw's llm, with the model described in its file as its pages say."""
    llm = pytest.importorskip("llm")
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    entry = f"- model_id: local\n  model_name: tiny\n  api_base: {server.url}/v1\n  supports_tools: true\n"
    (tmp_path / "extra-openai-models.yaml").write_text(entry)
    model = llm.get_model("local")
    model.key = KEY
    for stream in (False, True):
        backend.play(TWO_CALLS, ANSWER)

        def add(a: int, b: int) -> int:
            return a + b

        reply = model.chain("1+2? 3+4?", tools=[add], stream=stream)
        assert reply.text().endswith("3 and 7")
        assert history(backend) == EXPECTED


async def asked_by_pydantic_ai(server, api, stream):
    # Imported in the worker that has this test alone: it takes a second.
    httpx2 = pytest.importorskip("httpx2", reason="pydantic-ai-slim[openai] brings httpx2")
    pydantic_ai = pytest.importorskip("pydantic_ai", reason="it is not installed")
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    # A client of the test's own: the library's stays open.
    async with httpx2.AsyncClient() as client:
        options = {"base_url": f"{server.url}/v1", "api_key": KEY, "http_client": client}
        kind = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
        agent = pydantic_ai.Agent(kind("tiny", provider=OpenAIProvider(**options)))

        @agent.tool_plain
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        if not stream:
            return (await agent.run("1+2? 3+4?")).output
        async with agent.run_stream("1+2? 3+4?") as result:
            return "".join([piece async for piece in result.stream_text(delta=True)])


@pytest.mark.slow
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_pydantic_ai(server, backend, api, stream):
    # Without a text before the calls, which run_stream would take for the answer.
    backend.play(called(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})), ANSWER)
    assert asyncio.run(asked_by_pydantic_ai(server, api, stream)) == "3 and 7"
    asked, (role, _, calls), *results = EXPECTED
    assert history(backend) == [asked, (role, "", calls), *results]
    assert backend.request.tools[0].name == "add"


@pytest.mark.parametrize("stream", [False, True])
def test_ollama(ollama_client, backend, stream):
    backend.play(TWO_CALLS, ANSWER)
    tools = [{"type": "function", "function": {"name": "add", "parameters": ADD}}]
    messages = [{"role": "user", "content": "1+2? 3+4?"}]

    def ask():
        asked = {"model": "tiny", "messages": messages, "tools": tools, "keep_alive": "5m"}
        given = ollama_client.chat(
            **asked, stream=stream, options={"num_ctx": 4096, "temperature": 0}
        )
        parts = list(given) if stream else [given]
        said = [part.message for part in parts]
        calls = [one.model_dump() for message in said for one in message.tool_calls or ()]
        text = "".join(message.content or "" for message in said)
        thinking = "".join(message.thinking or "" for message in said)
        return parts[-1], {"content": text, "thinking": thinking, "tool_calls": calls}

    last, message = ask()
    assert (last.done, last.done_reason, last.eval_count) == (True, "stop", 12)
    messages.append({"role": "assistant", **message})
    messages.extend(
        {"role": "tool", "tool_name": "add", "content": added(one["function"]["arguments"])}
        for one in message["tool_calls"]
    )
    _, message = ask()
    assert message["content"] == "3 and 7"
    assert history(backend) == EXPECTED
    assert backend.request.messages[1].reasoning == "Both."


def test_ollama_models_and_errors(ollama, ollama_client, backend):
    client = ollama_client
    assert client.list().models[0].model == "tiny:latest"
    assert client.ps().models[0].context_length == 4096
    assert "tools" in client.show("tiny").capabilities
    assert client.generate("tiny:latest", "Hi").response == "Hello world"
    assert client.generate("tiny").done_reason == "load"
    with pytest.raises(ollama.ResponseError, match="no model named 'x'") as caught:
        client.generate("x", "Hi")
    assert caught.value.status_code == 404
    backend.play([ACCEPTED, ContentDelta("x"), ServerBusyError("busy", retry_after_s=1)])
    with pytest.raises(ollama.ResponseError, match="busy"):
        list(client.generate("tiny", "Hi", stream=True))
    with pytest.raises(ollama.ResponseError, match="not made for embeddings"):
        client.embed("tiny", "Hi")
    backend.served = (MODEL, EMBEDDER)
    assert client.embed("embedder", ["Hi", "you"], dimensions=3).embeddings == [[2, 0], [3, 1]]
    assert backend.request.dimensions == 3
    assert client.embeddings("embedder", "Hi").embedding == [2, 0]
    assert client.show("embedder").capabilities == ["embedding"]


def test_openai_embeddings(client, backend, openai):
    backend.served = (MODEL, EMBEDDER)
    made = client.embeddings.create(model="embedder", input=["Hi", "you"])  # as base64
    assert [one.embedding for one in made.data] == [[2, 0], [3, 1]]
    assert (made.usage.prompt_tokens, made.usage.total_tokens) == (5, 5)
    made = client.embeddings.create(
        model="embedder", input=[[1, 2, 3]], encoding_format="float", dimensions=2
    )
    assert made.data[0].embedding == [3, 0]
    with pytest.raises(openai.BadRequestError, match="tiny was not made for embeddings"):
        client.embeddings.create(model="tiny", input="Hi")
