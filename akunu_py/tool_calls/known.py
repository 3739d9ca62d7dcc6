"""Formats that are written down here, since no template shows all that a model writes."""

from akunu_py.tool_calls.format import ToolFormat

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

HERMES = ToolFormat(
    name="json",
    opens=('<tool_call>\n{"name": "',),
    after_names=('", "arguments": ',),
    close="}\n</tool_call>",
    separator="\n",
)
"""That of Hermes and Qwen, for models whose templates know no calls."""
