"""Thinking on or off, and effort: what a template's switches make of a wish."""

import pytest

from akunu_py.engine.reasoning import Thinking
from akunu_py.tokenizers.chat_template import ChatTemplate
from akunu_py.values.generation_config import GenerationConfig

SAID = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
QWEN = SAID + "[assistant]{% if enable_thinking is false %}<think></think>{% endif %}"
DEEPSEEK = SAID + "{% if thinking %}<think>{% else %}</think>{% endif %}"
GPT_OSS = (
    "{% if reasoning_effort is not defined %}{% set reasoning_effort = 'medium' %}{% endif %}"
    "Reasoning: {{ reasoning_effort }}" + SAID
)
MISTRAL = (
    "{% set effort = reasoning_effort | default('none') %}"
    "{% if effort not in ['none', 'high'] %}{{ raise_exception('unknown effort') }}{% endif %}"
    "[{{ effort }}]" + SAID
)
COMPARES = (
    "{% if reasoning_effort == 'low' %}[short]{% elif reasoning_effort == 'max' %}[long]{% endif %}"
    + SAID
)
SEED = "{% if thinking_budget == 0 %}[no thoughts]{% endif %}" + SAID
BOTH = (
    "{% if thinking_mode == 'thinking' and reasoning_effort == 'max' %}[much]{% endif %}"
    + SAID
    + "{% if thinking_mode == 'thinking' %}<think>{% endif %}"
)


class Rendered:
    """A tokenizer whose ids are the characters of a template's text."""

    def __init__(self, source):
        self._template = ChatTemplate(source, {})
        self.asked = 0

    def encode_chat(self, messages, *, tools=None, variables=None, continued=False):
        self.asked += 1
        given, shown = self._template.input.of(messages, tools or ())
        return [*map(ord, self._template.render(given, tools=shown, variables=variables))]

    def decode(self, ids, *, with_control=False):
        return "".join(map(chr, ids))


@pytest.mark.parametrize(
    ("source", "wish", "expected"),
    [
        (QWEN, {"thinking": False}, {"enable_thinking": False}),
        (QWEN, {"thinking": True}, {"enable_thinking": True}),
        (QWEN, {"effort": "none"}, {"enable_thinking": False}),
        (QWEN, {"effort": "high"}, {"enable_thinking": True}),
        (QWEN, {"thinking": False, "effort": "high"}, {"enable_thinking": False}),
        (DEEPSEEK, {"thinking": True}, {"thinking": True}),
        (DEEPSEEK, {"effort": "low"}, {"thinking": True}),
        (GPT_OSS, {"effort": "high"}, {"reasoning_effort": "high"}),
        (GPT_OSS, {"effort": "medium"}, {"reasoning_effort": "medium"}),
        (GPT_OSS, {"effort": "minimal"}, {"reasoning_effort": "low"}),
        (GPT_OSS, {"effort": "max"}, {"reasoning_effort": "high"}),
        (GPT_OSS, {"thinking": False}, {"reasoning_effort": "low"}),
        (GPT_OSS, {"thinking": True}, {}),
        (MISTRAL, {"effort": "minimal"}, {"reasoning_effort": "none"}),
        (MISTRAL, {"effort": "medium"}, {"reasoning_effort": "high"}),
        (MISTRAL, {"thinking": False}, {"reasoning_effort": "none"}),
        (COMPARES, {"effort": "max"}, {"reasoning_effort": "max"}),
        (COMPARES, {"effort": "xhigh"}, {"reasoning_effort": "high"}),
        (SEED, {"thinking": False}, {"thinking_budget": 0}),
        (BOTH, {"effort": "max"}, {"thinking_mode": "thinking", "reasoning_effort": "max"}),
        (BOTH, {"thinking": False}, {"thinking_mode": "chat", "reasoning_effort": "low"}),
        (SAID, {"thinking": False, "effort": "low"}, {}),
    ],
)
def test_variables_that_serve_a_wish(source, wish, expected):
    assert Thinking(Rendered(source)).variables(GenerationConfig(**wish)) == expected


@pytest.mark.parametrize(
    ("source", "supported"),
    [
        (QWEN, {"thinking"}),
        (GPT_OSS, {"effort"}),
        (MISTRAL, {"thinking", "effort"}),
        (BOTH, {"thinking", "effort"}),
        (SAID, set()),
        ("{{ raise_exception('no') }}", set()),
    ],
)
def test_options_that_a_template_heeds(source, supported):
    assert Thinking(Rendered(source)).supported == supported


def test_template_is_not_tried_without_a_wish():
    tokenizer = Rendered(QWEN)
    assert Thinking(tokenizer).variables(GenerationConfig()) == {}
    assert tokenizer.asked == 0


def test_ignored_wish_is_said_once(caplog):
    thinking = Thinking(Rendered(SAID))
    for _ in range(2):
        thinking.variables(GenerationConfig(thinking=False))
    assert [record.message for record in caplog.records] == [
        "the model's chat template has no switch for effort and thinking; it is ignored"
    ]
