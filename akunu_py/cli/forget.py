"""`akunu forget`: delete what `auto` learned, and the memory of replies if there is one."""

from pathlib import Path

import click

from akunu_py.cli.command import Command, option
from akunu_py.cli.input_text import GivenPath
from akunu_py.errors import ConfigError


@click.command(cls=Command)
@option(
    "--memory", type=GivenPath(path_type=Path, file_okay=False), metavar="FOLDER",
    help="Delete the replies that --memory FOLDER kept, too.",
)  # fmt: skip
def forget(memory: Path | None) -> None:
    """Delete what auto learned about drafting in earlier runs, for all models.

    It is some hundred numbers for each model and no text. Without it, replies are the same, and the
    first ones slightly slower. Conversations are deleted by akunu sessions rm.

    \b
    Examples:
      akunu forget
      akunu forget --memory drafts
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.drafting.auto.learned import delete_learned  # noqa: PLC0415 - numpy
    from akunu_py.drafting.memory import delete_memories  # noqa: PLC0415

    try:
        models = delete_learned()
        texts = 0 if memory is None else delete_memories(memory)
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be deleted: {error.strerror}") from None
    click.echo(f"deleted what was learned of {_counted(models, 'model')}", err=True)
    if memory is not None:
        click.echo(
            f"deleted the replies of {_counted(texts, 'vocabulary', 'vocabularies')}", err=True
        )


def _counted(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"
