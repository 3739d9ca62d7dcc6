"""Print the table of docs/tools.md: what is found in folders of chat templates (*.jinja).

llama.cpp's `models/templates` is such a folder, vLLM's `examples` another; the templates belong to
the authors of the models.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from akunu_py.system.errors import AkunuError, ConfigError
from akunu_py.tokenizers import ChatTemplate
from akunu_py.tool_calls.format import TAG
from akunu_py.tool_calls.known import known_format
from akunu_py.tool_calls.probing import Render, UnknownFormatError, probe_format
from akunu_py.values.messages import Message, Tool, ToolCall

ENDS = (
    "<|eom_id|>", "<|eot_id|>", "<|call|>", "<|im_end|>", "<|tool_response>", "<|eom|>", "<|eot|>",
    "<SPECIAL_12>", "<end>", "<｜hy_eos:opensource｜>",
)  # fmt: skip
_LFM = ("<|tool_call_start|>", "<|tool_call_end|>")
VOCABULARIES = {"LFM2-8B-A1B": _LFM, "LFM2.5-Instruct": _LFM}
"""Control tokens of models whose templates do not name them."""
BAR = "\\|"
"""As a cell of a table has it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    names: dict[str, list[str]] = defaultdict(list)
    for folder in parser.parse_args().folders:
        for path in sorted(folder.glob("*.jinja"), key=lambda path: path.name.lower()):
            names[describe_calls(path).replace("|", BAR)].append(path.stem)
    print("| calls | templates |\n|---|---|")
    for calls, templates in sorted(names.items(), key=lambda item: -len(item[1])):
        print(f"| {calls} | {', '.join(templates)} |")


def describe_calls(path: Path) -> str:
    """Return how a template writes calls, or why akunu cannot tell."""
    template = ChatTemplate(path.read_text(), {"bos": "<begin>", "eos": "<end>"})

    def render(messages: Sequence[Message], tools: Sequence[Tool]) -> str:
        values, given = template.input.of(tuple(messages), tuple(tools))
        return template.render(values, tools=given, add_generation_prompt=False)

    def without_tools(messages: Sequence[Message], _: Sequence[Tool]) -> str:
        return render(messages, ())

    prompt, reason = prompt_with_tools(render)
    try:
        format_ = probe_format(render if prompt else without_tools, ENDS)
        how = ""
    except UnknownFormatError as error:
        tokens = {*TAG.findall(template.source), *VOCABULARIES.get(path.stem, ())}
        found = known_format(prompt, tokens)
        if found is None:
            plain = "no place for tools: described in a message"
            return error.message if prompt or reason else plain
        if has_calls(without_tools if not prompt else render):
            # Earlier calls are written so all the same.
            how = f"; read as its prompt says, since {error.message}"
        else:
            how = "; akunu writes earlier calls, since the template does not"
        format_ = found
    except AkunuError as error:
        return error.message.split(";")[0]
    if not prompt:
        how += "; no place for tools: described in a message"
    return (format_.name if format_.several else f"{format_.name}, one call") + how


def prompt_with_tools(render: Render) -> tuple[str, str]:
    """Return a prompt with a tool, "" if the template has no place for one; or why it fails."""
    reason = ""
    for system in ((), (Message("system", "words"),)):
        try:
            return render((*system, Message("user", "words")), (Tool("a_tool", "words"),)), ""
        except ConfigError:
            continue
        except AkunuError as error:
            reason = reason if system else error.message
    return "", reason


def has_calls(render: Render) -> bool:
    """Return whether a template writes calls, in whatever way."""
    called = Message("assistant", tool_calls=(ToolCall("a_tool", {}, "probe0001"),))
    try:
        render((Message("user", "words"), called), (Tool("a_tool", "words"),))
    except AkunuError:
        return False
    return True


if __name__ == "__main__":
    main()
