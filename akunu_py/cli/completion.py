"""`akunu completion`: a script that teaches a shell akunu's commands and options.

With its scripts bash, zsh and fish ask akunu what may follow. click's own are the model; what
differs is said where it does. `install` makes click take these.
"""

import os
from typing import ClassVar

import click
from click.shell_completion import (
    BashComplete,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
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

# click's fails where compinit has not run, as in a new account on a Mac, and replaces the whole of
# --option=value.
_ZSH = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local -a names described response
    local kind key description
    (( ! $+commands[%(prog_name)s] )) && return 1
    response=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \
%(complete_var)s=zsh_complete %(prog_name)s 2> /dev/null)}")
    [[ $PREFIX == --*=* ]] && compset -P '*='
    for kind key description in ${response}; do
        case $kind in
            plain)
                if [[ $description == _ ]]; then
                    names+=("$key")
                else
                    described+=("$key:$description")
                fi ;;
            dir) _path_files -/ ;;
            file) _path_files -f ;;
        esac
    done
    (( $#described )) && _describe -V unsorted described
    (( $#names )) && compadd -V unsorted -a names
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }
    compdef %(complete_func)s %(prog_name)s
fi
"""

# click's cuts descriptions at their first comma, and offers nothing for --option=value.
_FISH = """\
function %(complete_func)s
    set -l word (commandline -ct | string collect --allow-empty)
    set -l option (string match -r -- '^--[^=]+=' $word; or echo)
    set -l line (commandline -cp | string collect)
    set -l response (env %(complete_var)s=fish_complete COMP_WORDS=$line COMP_CWORD=$word \
%(prog_name)s 2> /dev/null)
    for line in $response
        set -l item (string split -m 1 -- , $line)
        switch $item[1]
            case dir
                printf '%%s\\n' $option(__fish_complete_directories $item[2])
            case file
                printf '%%s\\n' $option(__fish_complete_path $item[2])
            case plain
                printf '%%s\\n' $option$item[2]
        end
    end
end
complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
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


class _Zsh(ZshComplete):
    source_template: ClassVar[str] = _ZSH


class _Fish(FishComplete):
    source_template: ClassVar[str] = _FISH


_SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def install() -> None:
    """Make click take these scripts, and what they ask, instead of its own."""
    for kind in _SHELLS.values():
        add_completion_class(kind)


def script(shell: str) -> str:
    """Return the script for "bash", "zsh" or "fish"."""
    return _SHELLS[shell].source_template % {
        "complete_func": "_akunu_completion",
        "complete_var": _VARIABLE,
        "prog_name": "akunu",
    }


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
    click.echo(script(shell), nl=False)
