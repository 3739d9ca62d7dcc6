"""`akunu completion`: a script that teaches a shell akunu's commands and options."""

import click

from akunu_py.cli.command import Command


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script for SHELL that completes commands when Tab is pressed.

    It completes commands, options, their choices, drafters, models by alias and name, keys of the
    settings, and files. bash must be 4.4 or newer; the one that comes with macOS is older. In a
    shell that is open already, load it with: . ~/.akunu-completion

    \b
    Examples:
      akunu completion zsh > ~/.akunu-completion && echo '. ~/.akunu-completion' >> ~/.zshrc
      akunu completion bash > ~/.akunu-completion && echo '. ~/.akunu-completion' >> ~/.bashrc
      akunu completion fish > ~/.config/fish/completions/akunu.fish
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.cli.shell_scripts import script

    click.echo(script(shell), nl=False)
