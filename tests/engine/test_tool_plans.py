"""What a chat with tools gives to templates that know only a part of it."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from akunu_py.engine.tool_use import ToolUse
from akunu_py.system.errors import ConfigError
from akunu_py.tokenizers import ChatTemplate
from akunu_py.tool_calls.given_reader import GivenReader
from akunu_py.values.constraint import Constraint
from akunu_py.values.messages import Message, Tool, ToolCall

TOOLS = [Tool("weather", "The weather"), Tool("now", "The time")]
CALL = ToolCall("weather", {}, "abcdef123")
SAID = [
    Message("user", "hello"),
    Message("assistant", tool_calls=(CALL,)),
    Message("tool", "fourteen", tool_call_id=CALL.id),
]
ROLES = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
SHOWN = "{% if tools %}TOOLS{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}"
DEEPSEEK = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls %}<｜call｜>{{ c.function.name }}"
    "<｜sep｜>{{ c.function.arguments | tojson }}<｜end｜>{% endfor %}<|end|>{% endfor %}"
)


def tool_use(source, control_texts=(), reader=None):
    template = ChatTemplate(source, {"bos": "<s>", "eos": "<|end|>"})

    def chat_text(messages, *, tools=None):
        values, given = template.input.of(tuple(messages), tuple(tools or ()))
        return template.render(values, tools=given, add_generation_prompt=False)

    tokenizer = SimpleNamespace(
        chat_text=chat_text,
        end_ids=[1],
        decode=lambda ids, with_control: "<|end|>",
        control_tokens=lambda: dict(enumerate(control_texts, start=2)),
    )
    return ToolUse(tokenizer, reader), chat_text


@pytest.mark.parametrize(
    ("words", "tokens", "call"),
    [
        (SHOWN, ["<|tool_call_start|>", "<|tool_call_end|>"], "<|tool_call_start|>[weather()]<|tool_call_end|>"),
        (
            SHOWN.replace("TOOLS", "respond only with <|tool_call|> followed by a JSON list"), [],
            '<|tool_call|>[{"name": "weather", "arguments": {}}]',
        ),
    ],
)  # fmt: skip
def test_earlier_calls_are_written_where_the_template_leaves_them_out(words, tokens, call):
    """LFM 2, Granite 3.3: the template shows tools and results, and no calls."""
    use, chat_text = tool_use(words + ROLES, tokens)
    plan = use.plan(SAID, TOOLS, "auto")
    assert plan.tools == TOOLS
    text = chat_text(plan.messages, tools=plan.tools)
    assert f"<|assistant|>{call}<|end|><|tool|>fourteen<|end|>" in text
    [end] = [d for d in plan.parser.feed(call) + plan.parser.finish() if hasattr(d, "call")]
    assert end.call.name == "weather"


@pytest.mark.parametrize("words", [SHOWN, ""], ids=["a place for tools", "none"])
def test_a_deferred_tool_may_be_called_and_is_not_listed(words):
    use, chat_text = tool_use(words + DEEPSEEK)
    plans = [
        use.plan(SAID, tools, "auto")
        for tools in (TOOLS[:1], [TOOLS[0], replace(TOOLS[1], deferred=True)])
    ]
    before, after = (chat_text(plan.messages, tools=plan.tools) for plan in plans)
    assert before == after
    assert ["now" in plan.constraint.source for plan in plans] == [False, True]
    deltas = plans[1].parser.feed("<｜call｜>now<｜sep｜>{}<｜end｜>")
    assert [delta.call.name for delta in deltas if hasattr(delta, "call")] == ["now"]


def test_calls_that_cannot_be_read_back_stay_as_the_template_writes_them():
    """Llama 3.2 and Gemma 3 in Python's notation: calls without quotes, or without commas."""
    calls = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls %}[{{ c.function.name }}("
        "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %})]{% endfor %}<|end|>{% endfor %}"
    )
    told = "{% if tools %}Write [func_name1(params_name1=params_value1, params_name2=params_value2...)]{% endif %}"
    use, chat_text = tool_use(SHOWN + told + calls)
    plan = use.plan(SAID, TOOLS, "auto")
    text = chat_text(plan.messages, tools=plan.tools)
    assert "<|assistant|>[weather()]<|end|><|tool|>fourteen<|end|>" in text
    assert [(one.role, one.text) for one in plan.messages] == [(one.role, one.text) for one in SAID]
    given = '[weather(place="Rome", days=2)]'
    [end] = [d for d in plan.parser.feed(given) + plan.parser.finish() if hasattr(d, "call")]
    assert (end.call.name, end.call.arguments) == ("weather", {"place": "Rome", "days": 2})


def test_tools_are_described_with_the_calls_that_the_template_writes():
    """DeepSeek V3.1: no place for tools, but one for calls."""
    use, chat_text = tool_use(DEEPSEEK)
    plan = use.plan(SAID, TOOLS, "auto")
    text = chat_text(plan.messages)
    assert '<｜call｜>function_name<｜sep｜>{"argument_name": "value"}<｜end｜>' in text
    assert "<tool_call>" not in text
    assert "<｜call｜>" in plan.constraint.source
    assert "<|assistant|><｜call｜>weather<｜sep｜>{}<｜end｜><|end|>" in text


def test_a_template_that_shows_tools_and_nothing_else_is_refused():
    use, _ = tool_use(SHOWN + ROLES)
    with pytest.raises(ConfigError, match="leaves tool_calls out"):
        use.plan(SAID[:1], TOOLS, "auto")
    assert use.plan(SAID[:1], TOOLS, "none").tools == TOOLS


def test_without_any_place_calls_are_those_of_hermes():
    use, chat_text = tool_use(ROLES)
    text = chat_text(use.plan(SAID, TOOLS, "auto").messages)
    assert '{"name": <function-name>, "arguments": <args-json-object>}' in text
    assert '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>' in text
    assert "<|user|><tool_response>\nfourteen\n</tool_response><|end|>" in text


def test_arguments_that_the_format_cannot_write_are_named():
    """Calls are made without them, except those of a strict tool, which is refused."""
    use, _ = tool_use(SHOWN + ROLES, ["<|tool_call_start|>", "<|tool_call_end|>"])
    odd = {"type": "object", "properties": {"a b": {}, "c": {}}}
    many = {"$ref": "#/$defs/d", "$defs": {"d": {"properties": {str(i): {"$ref": "#/$defs/e"} for i in range(1100)}}, "e": {}}}  # fmt: skip
    tools = [Tool("odd", "", odd), Tool("fine", ""), Tool("many", "", many)]
    lost = ("tools.odd.parameters.properties.a b", "tools.many.parameters")
    assert use.unwritten(tools) == lost
    assert use.plan(SAID[:1], tools[:2], "auto").constraint is not None
    for choice in ("auto", "required"):
        with pytest.raises(
            ConfigError, match=r"cannot follow tools\.odd\..*a b, which is of a strict"
        ):
            use.plan(SAID[:1], [replace(tools[0], strict=True)], choice)
    assert use.plan(SAID[:1], [replace(tools[1], strict=True), tools[0]], "auto").constraint
    reader = GivenReader("mlx-lm", "<a>", "</a>", lambda text, _: {"name": text, "arguments": {}})
    assert tool_use(SHOWN + ROLES, reader=reader)[0].unwritten(tools) == ()
    assert tool_use(SHOWN + ROLES)[0].unwritten(tools) == ()


def test_a_given_reader_reads_what_is_not_understood(caplog):
    use, _ = tool_use(SHOWN + ROLES)
    reader = GivenReader("mlx-lm", "<a>", "</a>", lambda text, _: {"name": text, "arguments": {}})
    use._tokenizer.call_reader = lambda: reader
    plan = use.plan(SAID[:1], TOOLS, "auto")
    assert plan.constraint is None
    [end] = [delta for delta in plan.parser.feed("<a>now</a>") if hasattr(delta, "call")]
    assert end.call.name == "now"
    assert "not forced to be valid" in caplog.text
    with pytest.raises(ConfigError, match="they cannot be required; give tool_choice='auto'"):
        use.plan(SAID[:1], TOOLS, "required")


def test_a_chosen_reader_goes_before_a_format_that_is_understood(caplog):
    reader = GivenReader("mlx-lm", "<a>", "</a>", lambda text, _: {"name": text, "arguments": {}})
    use, chat_text = tool_use(SHOWN + DEEPSEEK, reader=reader)
    plan = use.plan(SAID, TOOLS, "auto")
    assert plan.constraint is None
    assert not use.holds_grammars
    assert "<｜call｜>weather<｜sep｜>{}<｜end｜>" in chat_text(plan.messages, tools=plan.tools)
    given = "<｜call｜>now<｜sep｜>{}<｜end｜><a>now</a>"
    [end] = [delta for delta in plan.parser.feed(given) if hasattr(delta, "call")]
    assert end.call.name == "now"
    assert not caplog.text
    with pytest.raises(ConfigError, match="cannot have a constraint, too"):
        plan.constraint_with(Constraint.json_schema({}))
    with pytest.raises(ConfigError, match="are read by mlx-lm, so they cannot be required"):
        use.plan(SAID[:1], TOOLS, {"name": "now"})


REFUSES = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
LEAVES_OUT = "{% set messages = messages | rejectattr('role', 'equalto', 'system') | list %}"


@pytest.mark.parametrize("source", [REFUSES, LEAVES_OUT])
def test_without_a_place_for_system_messages_tools_precede_the_question(source, caplog):
    """Gemma 2 refuses system messages, and Gemma 1 leaves them out."""
    use, chat_text = tool_use(source + ROLES)
    plan = use.plan(SAID, TOOLS, "auto")
    assert "<tool_call>" in plan.constraint.source
    assert not plan.tools
    text = chat_text(plan.messages)
    assert text.startswith("<|user|># Tools\n")
    assert '"name": "weather"' in text
    assert "</tool_call>\n\nhello<|end|><|assistant|><tool_call>" in text
    assert "described in the system message" in caplog.text


def test_without_a_question_the_description_is_a_message():
    use, chat_text = tool_use(REFUSES + ROLES)
    text = chat_text(use.plan([Message("assistant", "hello")], TOOLS, "auto").messages)
    assert "</tool_call><|end|><|assistant|>hello" in text


@pytest.mark.parametrize(
    ("source", "words"),
    [(LEAVES_OUT, r'(?s).*"name": "weather"'), (REFUSES, r"<\|user\|>be brief\n\n# Tools\n")],
)
def test_a_system_message_without_a_place_does_not_hide_the_tools(source, words):
    use, chat_text = tool_use(source + ROLES)
    said = [Message("system", "be brief"), *SAID]
    assert re.match(words, chat_text(use.plan(said, TOOLS, "auto").messages))


def test_results_are_in_the_order_of_their_calls_whatever_writes_them():
    """The template, or akunu where it has no place for calls."""
    calls = tuple(ToolCall("weather", {"place": place}, place) for place in ("a", "b"))
    results = [Message("tool", f"of {call.id}", tool_call_id=call.id) for call in calls]
    for source in (SHOWN + DEEPSEEK, SHOWN + ROLES, ROLES):
        use, chat_text = tool_use(source, ["<|tool_call_start|>", "<|tool_call_end|>"])
        texts = []
        for given in (results, results[::-1]):
            said = [Message("user", "x"), Message("assistant", tool_calls=calls), *given]
            plan = use.plan(said, TOOLS, "auto")
            texts.append(chat_text(plan.messages, tools=plan.tools))
        assert texts[0] == texts[1]
        assert texts[0].index("of a") < texts[0].index("of b")
