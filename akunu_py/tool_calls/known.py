"""Formats that are written down here, since no template shows all that a model writes."""

from collections.abc import Collection
from dataclasses import replace

from akunu_py.tool_calls.format import INDEX, PythonArguments, ToolFormat

HARMONY = ToolFormat(
    name="harmony",
    # The first is what models write, the second what the template does.
    opens=(
        "<|channel|>commentary to=functions.",
        " to=functions.",
        "<|channel|>analysis to=functions.",
    ),
    after_names=(
        " <|constrain|>json<|message|>",
        "<|channel|>commentary json<|message|>",
        "<|channel|>commentary <|constrain|>json<|message|>",
        "<|channel|>commentary<|message|>",
        " json<|message|>",
        "<|message|>",
    ),
    several=False,
    trigger="to=functions.",
)
"""gpt-oss's: OpenAI's "Harmony response format". A call ends the reply.

Its replies are several messages, each with a channel, so its grammar is that of a whole reply.
"""

LONG_MARKERS = ("<|message_sep|>\n\nfunction call<|role_sep|>",)
"""Markers that begin with a tag which other messages have, too: GigaChat 3's."""

HERMES = ToolFormat(
    name="json",
    opens=('<tool_call>\n{"name": "',),
    after_names=('", "arguments": ',),
    close="}\n</tool_call>",
    separator="\n",
)
"""The format of Hermes and Qwen, for models whose templates know no calls."""

_LFM = ToolFormat(
    name="pythonic",
    start="<|tool_call_start|>[",
    opens=("",),
    after_names=("(",),
    arguments=PythonArguments(),
    close=")",
    separator=", ",
    end="]<|tool_call_end|>",
)
_KIMI = ToolFormat(
    name="json",
    start="<|tool_calls_section_begin|>",
    opens=("<|tool_call_begin|>functions.",),
    after_names=(f":{INDEX}<|tool_call_argument_begin|>",),
    close="<|tool_call_end|>",
    end="<|tool_calls_section_end|>",
    id_form="functions.{name}:{index}",
    result_form="## Return of {id}\n{text}",
)
_GRANITE = replace(
    HERMES, start="<|tool_call|>[", opens=('{"name": "',), close="}", separator=", ", end="]"
)
_PYTHON_LIST = replace(_LFM, start="[", end="]", only_first=True)

_BY_TOKENS = {
    ("<|tool_call_start|>", "<|tool_call_end|>"): _LFM,
    ("<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"): _KIMI,
}
"""Control tokens of a vocabulary that no other format has: LFM 2 and Kimi K2."""

_BY_WORDS = {
    "<|tool_call|> followed by a JSON list": _GRANITE,
    '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}': HERMES,
    "[func_name1(params_name1=params_value1, params_name2=params_value2...)": _PYTHON_LIST,
}
"""Words in which templates tell a model how to call: Granite 3; SmolLM 3; Llama 3.2, Gemma 3 and
ToolACE in Python's notation, whose templates write calls without quotes or commas."""


def known_format(prompt: str, control_texts: Collection[str]) -> ToolFormat | None:
    """Return the format of a model whose template does not show it; None if it is unknown.

    `prompt` is a conversation with a tool as the template writes it, "" if it has no place for
    tools.
    """
    for tokens, format_ in _BY_TOKENS.items():
        if all(token in control_texts for token in tokens):
            return format_
    return next((format_ for words, format_ in _BY_WORDS.items() if words in prompt), None)
