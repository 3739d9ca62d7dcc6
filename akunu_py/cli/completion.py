"""`akunu completion`: a script that teaches a shell akunu's commands and options."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_AKUNU_COMPLETE"
"""Click's own name for the program `akunu`: the script sets it to ask for completions."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands, options and file names in SHELL.

    bash must be 4.4 or newer; the one that comes with macOS is older.

    \b
    Examples:
      akunu completion zsh > ~/.akunu-completion && echo '. ~/.akunu-completion' >> ~/.zshrc
      akunu completion bash > ~/.akunu-completion && echo '. ~/.akunu-completion' >> ~/.bashrc
      akunu completion fish > ~/.config/fish/completions/akunu.fish
    """  # noqa: D301 - \b keeps click from wrapping the examples
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - the choices are click's own shells
    root = click.get_current_context().find_root().command
    maker = kind(root, {}, "akunu", _VARIABLE)
    # Not source(): for bash it runs whatever bash is first in PATH to look at its version.
    click.echo(maker.source_template % maker.source_vars())
