"""`akunu bench check`: a measurement next to an earlier one."""

import contextlib
import io
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from akunu_py.cli.bench_output import Output, output_options
from akunu_py.cli.command import Command
from akunu_py.system.errors import ConfigError

if TYPE_CHECKING:
    from akunu_py.bench.check import Check
    from akunu_py.bench.result_file import BenchResult


@click.command(cls=Command)
@click.argument("baseline", type=click.Path(path_type=Path))
@click.argument("result", required=False, type=click.Path(path_type=Path))
@click.option(
    "--timing-tolerance",
    type=float,
    default=0.1,
    show_default=True,
    metavar="SHARE",
    help="A ratio is worse where its whole interval lies more than this share below the baseline.",
)
@click.option("--deterministic", is_flag=True, help="Leave timing out.")
@click.option("--force", is_flag=True, help="Compare even if the model, device or BLAS differs.")
@output_options
def check(  # noqa: PLR0917 - click passes by name
    baseline: Path,
    result: Path | None,
    timing_tolerance: float,
    deterministic: bool,
    force: bool,
    output: Output,
) -> None:
    """Compare a result file with an earlier one, BASELINE, of the same command.

    Both are a result.json that --output kept, or its folder. Without a RESULT the baseline's
    command is run again with the baseline's options. Figures that repeat must be the same to the
    last digit: tokens, passes, what was drafted and accepted, which replies are identical. Timing
    is compared as ratios measured in pairs.

    The exit code is 0 if the result holds up, otherwise 1.

    \b
    Examples:
      akunu bench hit-rate --quick --output before
      akunu bench check before
      akunu bench check before after --timing-tolerance 0.05
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.bench.check import check_results
    from akunu_py.bench.result_file import read_result, utc_now

    clock, started = time.monotonic(), utc_now()
    before = read_result(baseline)
    if result is None:
        with _folder(output) as folder:
            now = _run_again(before, folder)
    else:
        now = read_result(result)
    found = check_results(
        before,
        now,
        tolerance=timing_tolerance,
        deterministic=deterministic,
        force=force,
        defaults=_defaults(before.command),
    )
    arguments = {
        "baseline": str(baseline),
        "result": None if result is None else str(result),
        "timing_tolerance": timing_tolerance,
        "deterministic": deterministic,
        "force": force,
    }
    output.emit(_as_result(found, now, arguments, started, time.monotonic() - clock), _head(found))
    if not found.passed:
        raise click.exceptions.Exit(1)


def _head(found: "Check") -> str:
    worse = sum(ratio.worse for ratio in found.ratios)
    timing = f", {worse} of {len(found.ratios)} ratios worse" if found.ratios else ""
    verdict = "passed" if found.passed else "not passed"
    return f"{verdict}: {len(found.differences)} of {found.checked} figures differ{timing}"


def _as_result(
    found: "Check", now: "BenchResult", arguments: dict[str, Any], started: str, seconds: float
) -> "BenchResult":
    from akunu_py.bench.result_file import BenchResult

    return BenchResult(
        command="check",
        arguments=arguments,
        environment=now.environment,
        model=now.model,
        draft_model=now.draft_model,
        deterministic={
            "command": now.command,
            "passed": not found.differences,
            "checked": found.checked,
            "differences": {entry.path: [entry.baseline, entry.now] for entry in found.differences},
        },
        timing={"worse": [ratio.name for ratio in found.ratios if ratio.worse]},
        tables=found.tables,
        items=(),
        started=started,
        seconds=seconds,
    )


@contextlib.contextmanager
def _folder(output: Output) -> Iterator[Path]:
    """Give the folder of the run: in that of --output, where an interrupted one goes on."""
    if output.folder is not None:
        yield output.folder / "now"
        return
    with tempfile.TemporaryDirectory(prefix="akunu-check-") as name:
        yield Path(name)


def _run_again(baseline: "BenchResult", folder: Path) -> "BenchResult":
    """Run the baseline's command with its options; what it prints is its result file."""
    from akunu_py.bench.result_file import read_result

    command = _command(baseline.command)
    options, positional = command_line(command, baseline.arguments)
    # Behind "--" nothing is an option, whatever a file says that came from elsewhere.
    words = [*options, "--output", str(folder), "--json", "--", *positional]
    with contextlib.redirect_stdout(io.StringIO()):
        command.main(words, prog_name=f"akunu bench {baseline.command}", standalone_mode=False)
    return read_result(folder)


def _find_command(name: str) -> click.Command | None:
    from akunu_py.cli.bench import bench  # that module offers this one

    return bench.get_command(click.Context(bench), name)


def _command(name: str) -> click.Command:
    command = _find_command(name)
    if command is None or name in {"check", "report"}:
        raise ConfigError(
            f"the baseline is of the command {name!r}, which cannot be run again; give the new "
            "result as a second file"
        )
    return command


def _parameters(command: click.Command) -> dict[str, click.Parameter]:
    """Return a command's parameters by their names and by those of their options."""
    known = {
        word.removeprefix("--").replace("-", "_"): parameter
        for parameter in command.params
        for word in parameter.opts
    }
    # MODEL is also an option, which says the same.
    return known | {parameter.name or "": parameter for parameter in command.params}


def _defaults(name: str) -> dict[str, object]:
    """Return what a command's options are when left out; nothing for an unknown command."""
    command = _find_command(name)
    if command is None:
        return {}
    # A context of its own: the settings file has no say in what a baseline was made with.
    context = click.Context(command)
    found: dict[str, object] = {}
    for option, parameter in _parameters(command).items():
        with contextlib.suppress(click.MissingParameter):
            value, _ = parameter.handle_parse_result(context, {}, [])
            # Where there is no default, some versions of click have an object of their own.
            known = isinstance(value, str | int | float)
            found[option] = list(value) if isinstance(value, tuple) else value if known else None
    return found


def command_line(
    command: click.Command, arguments: Mapping[str, object]
) -> tuple[list[str], list[str]]:
    """Return the options and the positional words that make a command settle on these arguments.

    An argument has the name of an option, or that of the parameter it becomes. Raises ConfigError
    for one that the command does not have.
    """
    known = _parameters(command)
    options: list[str] = []
    positional: list[str] = []
    for name, value in arguments.items():
        if value is None:
            continue
        found = known.get(name)
        if found is None:
            raise ConfigError(
                f"this version of the command has no option for {name!r} "
                f"({json.dumps(value, default=str)}) of the baseline; record a new one"
            )
        values = value if isinstance(value, list | tuple) else [value]
        if isinstance(found, click.Argument):
            positional += map(str, values)
        elif isinstance(found, click.Option) and found.is_flag:
            options += [found.opts[0]] if value else found.secondary_opts[:1]
        else:
            word = max(found.opts, key=len)
            options += [f"{word}={entry}" for entry in values]
    return options, positional
