"""Where later prompts will differ: behind the system message, the last message, or before a reminder."""

from types import SimpleNamespace

import pytest
from toy_engine import END, SYSTEM, USER

from akunu_py.server.checkpoints import REMINDER, Checkpoints, without_reminders
from akunu_py.server.checkpoints import SYSTEM as LEAD
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.messages import Message, TextPart

S, U, A, T = (
    lambda text, role=role: Message(role, text) for role in ("system", "user", "assistant", "tool")
)
NOTE = "<system-reminder>\nbe quick\n</system-reminder>"
LASTING = [S("s"), U("one"), A("two"), U("three")]


@pytest.mark.parametrize(
    ("messages", "lasting"),
    [
        ([*LASTING[:3], U(f"three\n\n{NOTE}")], LASTING),
        ([*LASTING[:3], U(f"three\n{NOTE}\n\n{NOTE}\n")], LASTING),
        ([*LASTING[:3], Message("user", (TextPart("three"), TextPart(NOTE)))], LASTING),
        ([*LASTING, S("be quick")], LASTING),
        ([*LASTING, S("be quick"), S("be brief")], LASTING),
        ([*LASTING, U(NOTE)], LASTING),
        ([*LASTING[:3], T("found"), U(NOTE)], [*LASTING[:3], T("found")]),
        ([*LASTING, A("four"), S("be quick")], [*LASTING, A("four")]),
        (LASTING, []),
        ([*LASTING[:3], U(f"{NOTE} three")], []),
        ([*LASTING[:3], U("three </system-reminder>")], []),
        ([S("s")], []),
        ([U(NOTE)], []),
    ],
)
def test_reminders_at_the_end_are_left_out(messages, lasting):
    assert without_reminders(messages) == lasting


def test_a_place_lies_before_a_reminder(toy):
    config = GenerationConfig()
    finder = Checkpoints(toy)
    for last in (U(f"three\n\n{NOTE}"), U("three")):
        said = [*LASTING[:3], last]
        prompt = toy.chat_ids(said)
        places = finder.of(said, (), prompt, config)
        if last.text == "three":
            assert REMINDER not in places
        else:
            assert prompt[: places[REMINDER]] == toy.chat_ids([*LASTING])[:-2]
            assert prompt[places[REMINDER]] not in (END, USER, SYSTEM)


def test_where_the_template_refuses_there_is_no_place(toy):
    places = Checkpoints(toy).of([S("refuse"), U("one")], (), [3, 4, 5, 6], GenerationConfig())
    assert LEAD not in places


def test_what_templates_are_told_is_remembered_for_a_while():
    """Clients may tell them anything."""
    finder = Checkpoints(SimpleNamespace(chat_ids=lambda *_: [1, 2]))
    for number in range(100):
        config = GenerationConfig(template_variables={"custom": number})
        finder.of([U("three")], (), [1, 2], config)
    assert len(finder._openings) <= 16
