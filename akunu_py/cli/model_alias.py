"""`akunu models alias`: names that a user gives to models."""

from pathlib import Path

import click

from akunu_py.cli import completing
from akunu_py.cli.terminal import printable


@click.command()
@click.argument("name", required=False, shell_complete=completing.aliases)
@click.argument("target", required=False, shell_complete=completing.models)
@click.option("--delete", is_flag=True, help="Forget the alias NAME; its model stays.")
def alias(name: str | None, target: str | None, delete: bool) -> None:
    """Let NAME stand for TARGET: a path, hf:OWNER/REPO, hf:OWNER/REPO:QUANT.

    With NAME alone, say what it stands for; without one, list all. A relative path is kept as an
    absolute one. An alias goes before a file of that name: write ./NAME for the file.

    \b
    Examples:
      akunu models alias qwen hf:unsloth/Qwen3-0.6B-GGUF:Q4_K_M
      akunu models alias mine ./my-model.gguf
      akunu models alias --delete qwen
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.model_store.aliases import delete_alias, load_aliases, save_alias  # noqa: PLC0415
    from akunu_py.model_store.names import locate  # noqa: PLC0415
    from akunu_py.settings import load_settings  # noqa: PLC0415

    if delete:
        if name is None or target is not None:
            raise click.UsageError("give the one alias to delete")
        delete_alias(name)
    elif target is not None and name is not None:
        meant = locate(target, load_settings())
        save_alias(name, str(meant.absolute() if isinstance(meant, Path) else meant))
    else:
        aliases = load_aliases()
        if name is not None and name not in aliases:
            raise click.UsageError(
                printable(f"there is no alias {name!r}; give what it is to stand for")
            )
        for each in [name] if name is not None else sorted(aliases):
            click.echo(printable(f"{each}  {aliases[each]}" if name is None else aliases[each]))
