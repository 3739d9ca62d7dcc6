#!/usr/bin/env python3
"""Print one page of Markdown with every command and its options, from what --help says."""

import inspect
import os
import sys
from collections.abc import Iterator

import click

from akunu_py.cli.command import HEADINGS, SHARED

HEAD = """# Commands

`akunu COMMAND --help` says the same. Every command also takes `-v`, `--verbose`, `-q`, `--quiet`, `-h` and `--help`, and `--help-all` where it has rare options.
docs/coming-from.md has the words of Ollama, llama.cpp, mlx_lm and llm."""


def page() -> str:
    """The page's text."""
    # Imported here: what the user has set would be shown as defaults.
    for name in [name for name in os.environ if name.startswith("AKUNU_")]:
        del os.environ[name]
    os.environ["AKUNU_CONFIG"] = os.devnull
    from akunu_py.cli.main import cli

    context = click.Context(cli, info_name="akunu", **cli.context_settings)
    blocks = [HEAD, *_command(cli, context)]
    return "\n\n".join(blocks) + "\n"


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    """A heading, how it is called, what it does, its options; then the commands below it."""
    depth = len(context.command_path.split())
    yield f"{'#' * min(depth + 1, 4)} {context.command_path}"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"    {context.command_path} {usage}"
    yield from _text(command.help or "")
    yield from _tables(command, context)
    yield from _text(command.epilog or "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from _command(found, click.Context(found, context, info_name=name))


def _text(help_text: str) -> Iterator[str]:
    """Paragraphs as they are; what click is told not to wrap (after \\b) as code."""
    for paragraph in inspect.cleandoc(help_text).split("\n\n"):
        lines = paragraph.splitlines()
        if lines and lines[0].strip() == "\b":
            title, *code = lines[1:]
            yield _escaped(title.strip())
            yield "\n".join(f"    {line.removeprefix('  ')}" for line in code)
        else:
            yield _escaped(" ".join(line.strip() for line in lines))


def _tables(command: click.Command, context: click.Context) -> Iterator[str]:
    """A table for each group of options; those of --help-all alone have tables of their own."""
    tables: dict[tuple[str, bool], list[str]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if (
            isinstance(parameter, click.Option)
            and record is not None
            and parameter not in (*SHARED, command.get_help_option(context))
        ):
            names, meaning = record
            code = names.replace("|", "\\|")
            group = (getattr(parameter, "group", ""), getattr(parameter, "rare", False))
            row = f"| `{code}` | {_escaped(' '.join(meaning.split()))} |"
            tables.setdefault(group, []).append(row)
    for heading in HEADINGS:
        for rare in (False, True):
            if rows := tables.get((heading, rare)):
                title = f"{heading or 'Options'}{' (--help-all)' * rare}"
                yield "\n".join([f"| {title} | |", "|---|---|", *rows])


def _escaped(text: str) -> str:
    for character in ("|", "<", "*", "_"):
        text = text.replace(character, f"\\{character}")
    return text


if __name__ == "__main__":
    sys.stdout.write(page())
