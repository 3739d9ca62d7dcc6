"""An agent's session over HTTP: each request prefills the new text and at most one block.

The models are random ones of three kinds; their calls and answers are theirs, and the files that the
calls read are this project's. What is counted is what the client sees: usage and header.
"""

import pytest
from agent_engine import agent_server
from agent_session import FILES, FORMATS, ROUND, TASKS, beyond_new_text, result_of

BLOCK = 8
OPENING = 16
"""More tokens than the end of a message and the beginning of the next have."""

TOKENS = 8_000
TURNS = 30

kinds = pytest.mark.parametrize("kind", ["attention", "window", "recurrent"])
# What differs by format is the client's side, and what differs by kind is below all of them.
pairs = pytest.mark.parametrize(
    ("kind", "format_"), [("attention", "messages"), ("window", "responses"), ("recurrent", "chat")]
)


def check(turns):
    assert max(beyond_new_text(turns).values()) <= BLOCK, turns
    for turn in turns:
        assert turn.header == (turn.cached, turn.prefilled)


@pytest.mark.slow
@kinds
@pytest.mark.parametrize("format_", FORMATS)
def test_a_short_session(kind, format_, default_model):
    """Messages come with a billing block that is another in each request."""
    with agent_server(kind, default_model) as server:
        talk = FORMATS[format_](server.post, size=6)
        check([talk.turn(number) for number in range(7)])


@pytest.mark.slow
@kinds
@pytest.mark.parametrize("reminders", ["block", "message"])
def test_reminders_that_change_each_turn(kind, reminders, default_model):
    """All that came before the last reminder is reused: Claude Code 2.1.332 ends messages with one."""
    with agent_server(kind, default_model) as server:
        talk = FORMATS["messages"](server.post, size=6, reminders=reminders)
        lasting = 0
        for number in range(7):
            turn = talk.turn(number)
            assert turn.cached >= lasting - BLOCK, (number, turn)
            asked = talk.items[: -2 if ROUND[number % len(ROUND)] else -1]
            body = talk.body(number, None) | {"messages": asked}
            counted = server.post(f"{talk.path}/count_tokens", body).json()["input_tokens"]
            lasting = counted - OPENING
            assert turn.prompt > counted + 50


@pytest.mark.slow
@kinds
def test_files_behind_the_conversation(kind, default_model):
    """aider sends its files anew behind what was said: what two requests shared, a third reuses."""
    with agent_server(kind, default_model) as server:
        talk = FORMATS["messages"](server.post)
        lengths = []
        for number in range(6):
            file = result_of("read_file", {"path": FILES[number % len(FILES)], "first": 1})
            shown = {"role": "user", "content": file}, {"role": "assistant", "content": "Ok."}
            said = list(talk.items)
            talk.ask(TASKS[number % len(TASKS)])
            body = talk.body(number, None) | {"messages": [*said, *shown, talk.items[-1]]}
            reply = server.post(talk.path, body).json()
            cached, _, _ = talk.counts(reply["usage"])
            if number > 2:
                assert cached >= lengths[-3] - OPENING
            talk.take(reply)
            counted = server.post(f"{talk.path}/count_tokens", body | {"messages": talk.items})
            lengths.append(counted.json()["input_tokens"])


@pytest.mark.slow
@pairs
def test_tools_that_come_one_by_one(kind, format_, default_model):
    """Codex offers the tools of an MCP server once that has started, in an order of its own."""
    with agent_server(kind, default_model) as server:
        turns = []

        def post(path, body):
            offered = body["tools"][: len(turns) + 1]
            return server.post(path, body | {"tools": offered[::-1]})

        talk = FORMATS[format_](post, size=6)
        for number in range(6):
            turns.append(talk.turn(number))
        check(turns)


def restarted_for_each_turn(kind, vocabulary_of, folder, talk, **options):
    for number in range(5):
        with agent_server(kind, vocabulary_of, folder=folder, **options) as server:
            talk.post = server.post
            yield talk.turn(number)


@pytest.mark.slow
@kinds
@pytest.mark.parametrize("thinks", [False, True])
def test_a_server_that_is_restarted_for_each_turn(kind, thinks, default_model, tmp_path):
    talk = FORMATS["messages"](None, size=6)
    turns = list(restarted_for_each_turn(kind, default_model, tmp_path, talk, thinks=thinks))
    check(turns)
    assert any(turn.thoughts for turn in turns) == thinks


@pytest.mark.slow
def test_a_restarted_server_and_a_client_that_drops_thoughts(default_model, tmp_path):
    """Nobody knows the thoughts any more, so the reply is read again, and nothing before it."""
    talk = FORMATS["chat"](None, size=6, shows_thoughts=False)
    turns = list(restarted_for_each_turn("recurrent", default_model, tmp_path, talk, thinks=True))
    assert len(turns) > 2
    for number, beyond in beyond_new_text(turns).items():
        # Without its thoughts the reply is shorter than it was.
        assert beyond <= turns[number - 1].reply + BLOCK
        assert turns[number].cached >= turns[number - 1].prompt - BLOCK


@pytest.mark.slow
@pairs
def test_a_whole_session_of_a_client_that_drops_thoughts(kind, format_, default_model):
    with agent_server(kind, default_model, thinks=True) as server:
        talk = FORMATS[format_](server.post, size=60, shows_thoughts=False)
        turns = [talk.turn(number) for number in range(TURNS)]
    check(turns)
    assert turns[-1].prompt >= TOKENS
    assert any(turn.thoughts for turn in turns)
    assert "thinking" not in str(talk.items)
    assert "reasoning" not in str(talk.items)
