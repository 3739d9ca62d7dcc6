"""mlx-lm's parsers of tool calls, chosen by name."""

import pytest

from akunu_py.models.folder_tokenizer import named_parser
from akunu_py.models.whole_mlx_lm import submodules
from akunu_py.system.errors import ConfigError
from akunu_py.tool_calls.given_reader import GivenParser
from akunu_py.values.messages import Tool
from akunu_py.values.reply_deltas import CallEnd

KIMI_K3 = (
    '<|open|>tools<|sep|><|open|>call tool="weather" index="1"<|sep|><|open|>argument key="place" '
    'type="string"<|sep|>Köln<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>'
)
MUSE = (
    '<atem:function_calls><atem:invoke name="weather"><atem:parameter name="place">Köln'
    "</atem:parameter></atem:invoke></atem:function_calls>"
)


@pytest.mark.parametrize(("name", "text"), [("kimi_k3", KIMI_K3), ("muse_spark", MUSE)])
def test_calls_of_formats_that_akunu_does_not_read(name, text):
    parser = GivenParser(named_parser(name), [Tool("weather")])
    deltas = parser.feed(f"I look. {text}") + parser.finish()
    [call] = [delta.call for delta in deltas if isinstance(delta, CallEnd)]
    assert (call.name, call.arguments) == ("weather", {"place": "Köln"})


def test_every_parser_can_be_named():
    names = submodules("tool_parsers")
    assert len(names) >= 10
    for name in names:
        assert named_parser(name).start


@pytest.mark.parametrize("name", ["hermes", "", "__init__", "../qwen3_coder", "json"])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(ConfigError, match=r"the installed mlx-lm has .*json_tools, .*qwen3_coder"):
        named_parser(name)
