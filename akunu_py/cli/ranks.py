"""A command on several machines: rank 0 runs it, and the other ranks do what its model needs.

mlx.launch starts the same command once for each rank. All read their options; rank 0 alone reads
the prompt and prints.
"""

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from click.core import ParameterSource

from akunu_py.cli.command import option, setting
from akunu_py.cli.input_text import GivenPath
from akunu_py.system.errors import ConfigError

if TYPE_CHECKING:
    from akunu_py.models.ranks.link import Link
    from akunu_py.values.load_options import EngineOptions

_RANK = "MLX_RANK"
_LINK = "akunu_py.ranks"


def is_follower() -> bool:
    """Return whether this process is one of the ranks that do what rank 0 does."""
    return os.environ.get(_RANK, "0") not in ("", "0")


def on_ranks() -> bool:
    """Return whether this process is one of several ranks, or may be."""
    return bool(os.environ.get(_RANK))


def join(*, several: bool) -> "Link | None":
    """Connect the ranks; None for a process that stands alone.

    Raises ConfigError for a command that is not for `several` ranks, and one that was joined.
    """
    if not on_ranks():
        return None
    context = click.get_current_context(silent=True)
    if not several:
        name = "this" if context is None else context.command_path
        raise ConfigError(
            f"{name} runs on one machine; start it without mlx.launch. akunu generate, akunu chat "
            "and akunu serve run on several"
        )
    if context is not None and _LINK in context.meta:
        raise ConfigError(
            "on several ranks a command has one model; end it, and start it with the other model"
        )
    from akunu_py.models.ranks import start  # imports MLX

    link = start.join()
    if context is not None and link is not None:
        context.meta[_LINK] = link
    return link


def follow(link: "Link", path: Path, options: "EngineOptions") -> NoReturn:
    """Load this rank's part of a model, do what rank 0 does, and end the process with it."""
    from akunu_py.models.ranks import start  # imports MLX

    # Ctrl-C and the end of a terminal reach every process; rank 0 decides what they mean.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    start.follow(link, path, options)
    sys.exit(0)


def _start_on_hosts(context: click.Context, hosts: click.Parameter, file: Path | None) -> None:
    if file is None or context.resilient_parsing:
        return
    if on_ranks():
        # A rank may have inherited the variable or the settings.
        if context.get_parameter_source(str(hosts.name)) is ParameterSource.COMMANDLINE:
            raise click.UsageError("mlx.launch has the hosts already; leave --hosts out")
        return
    beside = Path(sys.executable).with_name("mlx.launch")
    program = str(beside) if beside.is_file() else shutil.which("mlx.launch")
    if program is None:
        raise ConfigError("mlx.launch is not on the PATH; it is a part of the package mlx")
    if not file.is_file():
        raise click.UsageError(f"{file} is not a file")
    words = _without_hosts(sys.argv[1:])
    sys.stdout.flush()
    command = [program, "--hostfile", str(file), "--", sys.executable, "-m", "akunu_py", *words]
    os.execv(program, command)  # noqa: S606 - no shell


RANKS_OPTIONS = (
    option(
        "--hosts", type=GivenPath(path_type=Path, dir_okay=False), metavar="FILE",
        group="Model", rare=True, is_eager=True, expose_value=False, callback=_start_on_hosts,
        help="Run on the machines of this file, in the format of mlx.launch.",
    ),
    setting(
        "check_ranks", type=bool,
        help="First compare what all ranks compute with the whole model on rank 0; when left out, "
        "once for a model and its ranks, where the whole model fits.",
    ),
)  # fmt: skip


def _without_hosts(words: list[str]) -> list[str]:
    """Return a command's words without `--hosts` and its file."""
    kept: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--":
            return [*kept, word, *left]
        if word == "--hosts":
            next(left, None)
        elif not word.startswith("--hosts="):
            kept.append(word)
    return kept
