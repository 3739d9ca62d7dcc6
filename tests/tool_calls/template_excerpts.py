"""Chat templates that write calls as real families do, in few lines, and the texts that must be found."""

import functools
from dataclasses import dataclass

from akunu_py.tokenizers import ChatTemplate
from akunu_py.tool_calls.format import ToolFormat
from akunu_py.tool_calls.probing import probe_format
from akunu_py.values.messages import Message, Tool

ENDS = ("<|end|>", "<|call|>")


@dataclass(frozen=True)
class Excerpt:
    calls: str
    """What stands in place of an assistant's calls; the loop is the template's own."""
    kind: str
    marker: str
    mlx_parser: str = ""
    several: bool = True


_TOOLS = "{% if tools %}{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}"
_LOOP = "{% for c in m.tool_calls %}{% set f = c.function %}"


def _source(calls: str) -> str:
    # Templates lose a line break after a block.
    calls = calls.replace("%}\n", '%}{{ "\n" }}')
    return (
        _TOOLS
        + "{% for m in messages %}<|{{ m.role }}|>{% if m.tool_calls %}{{ m.content }}"
        + calls
        + "{% else %}{{ m.content }}{% endif %}<|end|>\n{% endfor %}"
        + "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )


_QWEN_CODER = (
    _LOOP
    + "{% if not loop.first %}\n{% endif %}<tool_call>\n<function={{ f.name }}>{% for k, v in f.arguments.items() %}\n<parameter={{ k }}>\n"
    "{{ v | tojson if v is mapping or (v is sequence and v is not string) else v | string }}\n</parameter>{% endfor %}\n</function>\n</tool_call>{% endfor %}"
)
_GLM = (
    _LOOP
    + "\n<tool_call>{{ f.name }}{% for k, v in f.arguments.items() %}\n<arg_key>{{ k }}</arg_key>\n<arg_value>"
    "{{ v if v is string else v | tojson }}</arg_value>{% endfor %}\n</tool_call>{% endfor %}"
)
_KEYWORDS = (
    "{% for k, v in f.arguments.items() %}{{ k }}={{ '\"' + v + '\"' if v is string else v | tojson if v is mapping else v }}"
    "{% if not loop.last %}, {% endif %}{% endfor %}"
)
_GEMMA = (
    "{% macro written(v) %}{% if v is string %}<|\"|>{{ v }}<|\"|>{% elif v is mapping %}{{ '{' }}{% for k, x in v | dictsort %}{{ k }}:{{ written(x) }}"
    "{{ '' if loop.last else ',' }}{% endfor %}{{ '}' }}{% elif v is sequence %}[{% for x in v %}{{ written(x) }}{{ '' if loop.last else ',' }}{% endfor %}]"
    "{% else %}{{ v | tojson }}{% endif %}{% endmacro %}"
    + _LOOP
    + "<|tool_call>call:{{ f.name }}{{ written(f.arguments) }}<tool_call|>{% endfor %}"
)
EXCERPTS = {
    "hermes": Excerpt(
        _LOOP + '{% if not loop.first %}\n{% endif %}<tool_call>\n{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}\n</tool_call>{% endfor %}',
        "json", "<tool_call>", "json_tools",
    ),
    "granite": Excerpt(
        "<|tool_call|>[" + _LOOP + "{{ f | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}]",
        "json", "<|tool_call|>",
    ),
    "llama": Excerpt(
        '{% if m.tool_calls | length > 1 %}{{ raise_exception("one call") }}{% endif %}' + _LOOP
        + '{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}{% endfor %}',
        "json", '{"name": "', several=False,
    ),
    "nemo": Excerpt(
        "[TOOL_CALLS][" + _LOOP + '{% if c.id | length != 9 %}{{ raise_exception("nine") }}{% endif %}'
        '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}, "id": "{{ c.id }}"}{% if not loop.last %}, {% endif %}{% endfor %}]',
        "json", "[TOOL_CALLS]", "mistral",
    ),
    "mistral": Excerpt(
        _LOOP + "[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}{% endfor %}", "json", "[TOOL_CALLS]", "mistral",
    ),
    "mistral with ids": Excerpt(
        _LOOP + "[TOOL_CALLS]{{ f.name }}[CALL_ID]{{ c.id }}[ARGS]{{ f.arguments | tojson }}{% endfor %}", "json", "[TOOL_CALLS]",
    ),
    "deepseek": Excerpt(
        "<｜tool▁calls▁begin｜>" + _LOOP + "<｜tool▁call▁begin｜>{{ f.name }}<｜tool▁sep｜>{{ f.arguments | tojson }}<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜>",
        "json", "<｜tool▁calls▁begin｜>",
    ),
    "deepseek r1": Excerpt(
        "<｜tool▁calls▁begin｜>" + _LOOP + "{% if not loop.first %}\n{% endif %}<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ f.name }}\n```json\n{{ f.arguments | tojson }}\n```<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜>",
        "json", "<｜tool▁calls▁begin｜>",
    ),
    "deepseek v3.2": Excerpt(
        "\n\n<｜DSML｜function_calls>\n" + _LOOP + '<｜DSML｜invoke name="{{ f.name }}">\n{% for k, v in f.arguments.items() %}<｜DSML｜parameter name="{{ k }}" string="{{ "true" if v is string else "false" }}">'
        "{{ v if v is string else v | tojson }}</｜DSML｜parameter>\n{% endfor %}</｜DSML｜invoke>\n{% endfor %}</｜DSML｜function_calls>",
        "tagged", "<｜DSML｜function_calls>",
    ),
    "kimi": Excerpt(
        "<|tool_calls_section_begin|>" + _LOOP + "<|tool_call_begin|>functions.{{ f.name }}:{{ loop.index0 }}<|tool_call_argument_begin|>{{ f.arguments | tojson }}<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>",
        "json", "<|tool_calls_section_begin|>", "kimi_k2",
    ),
    "kimi by id": Excerpt(
        "<|tool_calls_section_begin|>" + _LOOP + "<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>{{ f.arguments | tojson }}<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>",
        "json", "<|tool_calls_section_begin|>", "kimi_k2",
    ),
    "solar": Excerpt(
        "<|tool_calls|>" + _LOOP + "<|tool_call:begin|>{{ c.id }}<|tool_call:name|>{{ f.name }}<|tool_call:args|>{{ f.arguments | tojson }}<|tool_call:end|>{% endfor %}<|calls|>",
        "json", "<|tool_calls|>",
    ),
    "command": Excerpt(
        "<|START_ACTION|>[\n" + _LOOP + '    {"tool_call_id": "{{ loop.index0 }}", "tool_name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}{% if not loop.last %},{% endif %}\n{% endfor %}]<|END_ACTION|>',
        "json", "<|START_ACTION|>",
    ),
    "minimax m1": Excerpt(
        "<tool_calls>\n" + _LOOP + '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}\n{% endfor %}</tool_calls>', "json", "<tool_calls>",
    ),
    "apertus": Excerpt(
        "<|tools_prefix|>[" + _LOOP + '{"{{ f.name }}": {{ f.arguments | tojson }}}{% if not loop.last %}, {% endif %}{% endfor %}]<|tools_suffix|>', "json", "<|tools_prefix|>",
    ),
    "functionary": Excerpt(
        _LOOP + "<function={{ f.name }}>{{ f.arguments | tojson }}</function>{% endfor %}", "json", "<function=",
    ),
    "qwen coder": Excerpt(_QWEN_CODER, "tagged", "<tool_call>", "qwen3_coder"),
    "glm": Excerpt(_GLM, "tagged", "<tool_call>", "glm47"),
    "gemma": Excerpt(_GEMMA, "quoted", "<|tool_call>", "gemma4"),
    "minimax m2": Excerpt(
        "\n<minimax:tool_call>\n" + _LOOP + '<invoke name="{{ f.name }}">\n{% for k, v in f.arguments.items() %}<parameter name="{{ k }}">{{ v if v is string else v | tojson }}</parameter>\n{% endfor %}</invoke>\n{% endfor %}</minimax:tool_call>',
        "tagged", "<minimax:tool_call>", "minimax_m2",
    ),
    "ling": Excerpt(
        _LOOP + "{% if not loop.first %}\n{% endif %}<tool_call>{{ f.name }}\n{% for k, v in f.arguments.items() %}<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v if v is string else v | tojson }}</arg_value>{% endfor %}{% if f.arguments %}\n{% endif %}</tool_call>{% endfor %}",
        "tagged", "<tool_call>", "glm47",
    ),
    "lfm": Excerpt(
        "<|tool_call_start|>[" + _LOOP + "{{ f.name }}(" + _KEYWORDS + "){% if not loop.last %}, {% endif %}{% endfor %}]<|tool_call_end|>",
        "pythonic", "<|tool_call_start|>", "pythonic",
    ),
    "lfm in single quotes": Excerpt(
        "<|tool_call_start|>[" + _LOOP + "{{ f.name }}(" + _KEYWORDS.replace("'\"' + v + '\"'", '"\'" + v + "\'"') + "){% if not loop.last %}, {% endif %}{% endfor %}]<|tool_call_end|>",
        "pythonic", "<|tool_call_start|>", "pythonic",
    ),
    "llama 4": Excerpt(
        "[" + _LOOP + '{{ f.name }}({% for k, v in f.arguments.items() %}{{ k }}="{{ v }}"{% if not loop.last %}, {% endif %}{% endfor %}){% if not loop.last %}, {% endif %}{% endfor %}]',
        "pythonic", "[",
    ),
    "minicpm": Excerpt(
        _LOOP + '{% if not loop.first %}\n{% endif %}<function name="{{ f.name }}">{% for k, v in f.arguments.items() %}<param name="{{ k }}">'
        "{{ '<![CDATA[' ~ v ~ ']]>' if v is string and ('<' in v or '&' in v or '\\n' in v) else v }}</param>{% endfor %}</function>{% endfor %}",
        "tagged", '<function name="', "minicpm5",
    ),
    "gigachat": Excerpt(
        "<|message_sep|>\n\nfunction call<|role_sep|>\n{% set f = m.tool_calls[0].function %}" + '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}<|message_sep|>',
        "json", "<|message_sep|>\n\nfunction call<|role_sep|>", several=False,
    ),
    "gpt-oss": Excerpt(
        "{% set c = m.tool_calls[0] %} to=functions.{{ c.function.name }}<|channel|>commentary json<|message|>{{ c.function.arguments | tojson }}<|call|>",
        "harmony", "to=functions.", several=False,
    ),
}  # fmt: skip


def renderer(source: str):
    template = ChatTemplate(source, {"bos": "<s>", "eos": "<|end|>"})

    def render(messages: list[Message], tools: list[Tool]) -> str:
        values, given = template.input.of(tuple(messages), tuple(tools))
        return template.render(values, tools=given, add_generation_prompt=False)

    return render


def render_of(name: str):
    return renderer(_source(EXCERPTS[name].calls))


@functools.cache
def format_of(name: str) -> ToolFormat:
    return probe_format(render_of(name), ENDS)
