"""`akunu completion`: a script that teaches a shell akunu's commands and options.

With its scripts bash, zsh and fish ask akunu what may follow. They are click's own but for bash.
"""

import os
from typing import ClassVar

import click
from click.shell_completion import (
    BashComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from akunu_py.cli.command import Command

_VARIABLE = "_AKUNU_COMPLETE"
"""Click's own name for the program `akunu`: a script sets it to ask for completions."""

# click's needs bash 4.4, takes the pieces of hf:OWNER/REPO, which bash splits at colons, for words,
# and where names may stand beside files it offers files alone.
_BASH = """\
%(complete_func)s() {
    local line="${COMP_LINE:0:$COMP_POINT}" kind value colon="" files=""
    COMPREPLY=()
    local word="${line##*[[:space:]]}"
    word="${word#--*=}"
    # The part of the word before the last colon: bash replaces what is behind it alone.
    if [[ "$word" == *:* && "$COMP_WORDBREAKS" == *:* ]]; then
        colon="${word%%"${word##*:}"}"
    fi
    while IFS=, read -r kind value; do
        case "$kind" in
            plain)
                printf -v value %%q "${value#"$colon"}"
                COMPREPLY+=("$value") ;;
            file) files=-f ;;
            dir) files=-d ;;
        esac
    done < <(COMP_LINE="$line" %(complete_var)s=bash_complete "$1" 2> /dev/null)
    if [[ -z "$files" ]]; then
        return
    elif [[ ${#COMPREPLY[@]} == 0 ]]; then
        if [[ "$files" == -f ]]; then compopt -o default; else compopt -o dirnames; fi
    else
        while IFS= read -r value; do
            [[ -d "$value" ]] && kind=/ || kind=""
            printf -v value %%q "$value"
            COMPREPLY+=("$value$kind")
        done < <(compgen "$files" -- "$word")
    fi
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _Bash(BashComplete):
    """Asks with the line up to the cursor: bash's own words are split at colons, too."""

    source_template: ClassVar[str] = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        if not words or line[-1].isspace():
            return words[1:], ""
        return words[1:-1], words[-1]


def install() -> None:
    """Make click take this script, and what it asks, instead of its own."""
    add_completion_class(_Bash)


def script(shell: str) -> str:
    """Return the script for "bash", "zsh" or "fish"."""
    install()
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - one of click's
    made = kind(click.Command("akunu"), {}, "akunu", _VARIABLE)
    # Without the search for a bash and its version, which `source` begins with.
    return made.source_template % made.source_vars()


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script for SHELL that completes commands when Tab is pressed.

    It completes commands, options, their choices, drafters, models by alias and name, keys of the
    settings, and files. bash must be 4.4 or newer; the one that comes with macOS is older. zsh
    needs "autoload -Uz compinit && compinit" before it in ~/.zshrc, if that is not there yet. In a
    shell that is open already, load it with: . ~/.akunu-completion

    \b
    Examples:
      akunu completion zsh > ~/.akunu-completion && echo '. ~/.akunu-completion' >> ~/.zshrc
      akunu completion bash > ~/.akunu-completion && echo '. ~/.akunu-completion' >> ~/.bashrc
      akunu completion fish > ~/.config/fish/completions/akunu.fish
    """  # noqa: D301 - \b keeps click from wrapping the examples
    click.echo(script(shell), nl=False)
