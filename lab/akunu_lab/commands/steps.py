"""`akunu bench steps`: replies of a trace, step by step."""

from pathlib import Path

import click

from akunu_lab.study.options import tokenizer_option
from akunu_py.api import Command, ConfigError, load_tokenizer


@click.command(cls=Command)
@click.argument("trace", type=click.Path(path_type=Path))
@tokenizer_option(
    "The model that made the replies; its tokenizer is enough.  [default: the shipped model]"
)
def steps(trace: Path, tokenizer: Path | None) -> None:
    """Print the replies of TRACE step by step: what was drafted, what became of it, and why.

    TRACE is a file that akunu generate or akunu chat wrote with the setting trace-file.

    \b
    Examples:
      AKUNU_TRACE_FILE=mine.jsonl akunu generate model.gguf "Who are you?"
      akunu bench steps mine.jsonl --tokenizer model.gguf
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_lab.replay.step_text import step_lines
    from akunu_lab.replay.traces import read_trace
    from akunu_py.api import vocabulary_fingerprint

    texts = load_tokenizer(tokenizer)
    vocabulary = vocabulary_fingerprint(texts.token_texts())
    found = [item for item in read_trace(trace) if item.steps]
    if not found:
        raise ConfigError(f"{trace} has no steps; akunu writes them with the setting trace-file")
    for item in found:
        if item.vocabulary != vocabulary:
            raise ConfigError(
                f"the item {item.id} has the ids of another vocabulary; give the model that made "
                "the reply as --tokenizer"
            )
        click.echo(f"{item.id} \N{MIDDLE DOT} {item.decoding}")
        for line in step_lines(item.steps, lambda ids: texts.decode(ids, with_control=True)):
            click.echo(line)
