"""Print the table of docs/tools.md: what is found in a folder of chat templates (*.jinja).

llama.cpp's `models/templates` is such a folder; its templates belong to the authors of the models.
"""

import argparse
from pathlib import Path

from akunu_py.errors import AkunuError
from akunu_py.messages import Message, Tool
from akunu_py.tokenizers import ChatTemplate
from akunu_py.tool_calls.format import ID, INDEX, ToolFormat
from akunu_py.tool_calls.probing import UnknownFormatError, probe_format

ENDS = (
    "<|eom_id|>", "<|eot_id|>", "<|call|>", "<|im_end|>", "<|tool_response>", "<|eom|>", "<|eot|>",
    "<SPECIAL_12>", "<end>", "<｜hy_eos:opensource｜>",
)  # fmt: skip


def read(path: Path) -> ToolFormat:
    """Return the format of a template."""
    template = ChatTemplate(path.read_text(), {"bos": "<begin>", "eos": "<end>"})

    def render(messages: list[Message], tools: list[Tool]) -> str:
        values, given = template.input.of(tuple(messages), tuple(tools))
        return template.render(values, tools=given, add_generation_prompt=False)

    return probe_format(render, ENDS)


def without_tools(path: Path) -> bool:
    template = ChatTemplate(path.read_text(), {"bos": "<begin>", "eos": "<end>"})
    try:
        template.input.of((Message("user", "words"),), (Tool("a_tool"),))
    except AkunuError:
        return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    print("| template | calls | marker |\n|---|---|---|")
    for path in sorted(parser.parse_args().folder.glob("*.jinja"), key=lambda p: p.name.lower()):
        try:
            found = read(path)
        except UnknownFormatError as error:
            place = without_tools(path)
            reason = "no place for tools: described in a message" if place else error.message
            print(f"| {path.stem} | {reason} | |")
        except AkunuError as error:
            print(f"| {path.stem} | {error.message[:80]} | |")
        else:
            kind = found.name if found.several else f"{found.name}, one call"
            marker = found.marker.replace("|", "\\|").replace(ID, "ID").replace(INDEX, "N")
            print(f"| {path.stem} | {kind} | `{marker}` |")


if __name__ == "__main__":
    main()
