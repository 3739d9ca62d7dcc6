"""`akunu doctor`: the machine, a self-test, and what to do."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from akunu_py import __version__
from akunu_py.cli.command import Command
from akunu_py.cli.terminal import fitted, let_others_end, printable
from akunu_py.cli.verbosity import is_quiet
from akunu_py.system.errors import AkunuError, ConfigError
from akunu_py.system.settings import config_path

if TYPE_CHECKING:
    from akunu_py.diagnosis.advice import Finding
    from akunu_py.diagnosis.facts import Facts
    from akunu_py.diagnosis.self_test import SelfTest
    from akunu_py.system.settings import Settings


@click.command(cls=Command)
@click.option(
    "--self-test/--no-self-test",
    default=True,
    help="Run the default model for about ten seconds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of text.")
def doctor(self_test: bool, as_json: bool) -> None:
    """Check the machine and the installation, and say what to improve.

    The self-test generates replies with the default model, with and without drafting: their tokens
    should be the same. Each finding is an error (something is wrong), a warning (it works, worse
    than it could) or a note (worth knowing), with what to do. docs/doctor.md has them all, and the
    fields of --json.

    The exit code is 0, or 1 where there is an error.

    \b
    Examples:
      akunu doctor
      akunu doctor --no-self-test
      akunu doctor --json > doctor.json
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.diagnosis.advice import findings  # imports MLX
    from akunu_py.diagnosis.facts import read_facts
    from akunu_py.diagnosis.system import System
    from akunu_py.model_store.hub_cache import cache_folder as hub_folder
    from akunu_py.system.settings import cache_folder

    if self_test:
        let_others_end()
    folders = {
        "measured costs": cache_folder(),
        "models of the hub": hub_folder(),
        "settings": config_path().parent,
    }
    facts = read_facts(System(), __version__, folders)
    test = _test() if self_test and facts.backend is not None else None
    found = [*_of_settings(), *findings(facts, test)]
    if as_json:
        click.echo(_record(facts, test, found))
    else:
        click.echo(printable("\n".join(_lines(facts, test, found))))
    if any(finding.severity == "error" for finding in found):
        click.get_current_context().exit(1)


def _test() -> "SelfTest | str":
    from akunu_py.diagnosis.self_test import run_self_test  # imports MLX

    if sys.stderr.isatty() and not is_quiet():
        click.echo("running the default model for about ten seconds", err=True)
    try:
        return run_self_test()
    except (AkunuError, OSError, RuntimeError, MemoryError) as error:
        # MLX's own errors are RuntimeErrors: whatever stops the model is a finding.
        return f"{type(error).__name__}: {error}"


def _of_settings() -> Iterator["Finding"]:
    from akunu_py.cli.command_settings import check_settings, unknown_variables
    from akunu_py.diagnosis.advice import Finding
    from akunu_py.system.settings import load_settings

    context = click.get_current_context()
    try:
        settings = load_settings()
        check_settings(settings, context)
    except ConfigError as error:
        yield Finding("error", str(error), "Correct the file: akunu config edit")
    else:
        yield from _of_models(settings)
    for warning in unknown_variables(context):
        yield Finding("warning", warning, "Unset it, or set the one that was meant.")


def _of_models(settings: "Settings") -> Iterator["Finding"]:
    """Look for the model that commands take by default, and read the aliases."""
    from akunu_py.diagnosis.advice import Finding
    from akunu_py.model_store.aliases import aliases_path, load_aliases
    from akunu_py.model_store.names import resolve_model

    try:
        load_aliases()
    except ConfigError as error:
        yield Finding("error", str(error), f"Correct or delete {aliases_path()}.")
        return
    try:
        resolve_model(None, settings, download=False)
    except AkunuError as error:
        yield Finding(
            "error",
            str(error),
            "Name another one (AKUNU_MODEL, or model in the settings), or none.",
        )


def _record(facts: "Facts", test: "SelfTest | str | None", found: list["Finding"]) -> str:
    record = {
        **msgspec.to_builtins(facts, enc_hook=str),
        "self_test": {"error": test} if isinstance(test, str) else test,
        "findings": found,
    }
    return msgspec.json.encode(record).decode()


def _lines(facts: "Facts", test: "SelfTest | str | None", found: list["Finding"]) -> Iterator[str]:
    rows = [*_machine(facts), *_tested(test)]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        yield fitted(f"{name:{width}}  {value}", width + 2)
    yield ""
    for finding in found:
        yield fitted(f"{finding.severity}: {finding.text}")
        yield fitted(f"  {finding.advice}", 2)
    if not found:
        yield "Nothing to mend."


def _machine(facts: "Facts") -> Iterator[tuple[str, str]]:
    from akunu_py.cpu import load_kernels
    from akunu_py.diagnosis.advice import size

    memory = "unknown" if facts.memory_bytes is None else size(facts.memory_bytes)
    yield "system", f"{facts.system}, {facts.machine}"
    yield "chip", f"{facts.chip or 'unknown'}, {facts.processors} processors"
    yield "memory", memory
    if facts.load is not None:
        yield "load", f"{facts.load:.1f}"
    if facts.working_set_bytes is not None:
        by_hand = facts.wired_limit_bytes
        hand = "" if by_hand is None else f"; wired limit set to {size(by_hand)}"
        yield "GPU memory", f"{size(facts.working_set_bytes)} recommended{hand}"
    yield "backend", f"{facts.backend or 'none'}: {facts.device}"
    if facts.nvidia:
        yield "GPUs", ", ".join(facts.nvidia)
    if facts.blas is not None:
        yield "BLAS", facts.blas.name
    if facts.no_kernels is not None:
        yield "kernels", load_kernels().name
    versions = (f"{name} {version or 'missing'}" for name, version in facts.versions.items())
    yield "versions", ", ".join(versions)
    for folder in facts.folders:
        free = "" if folder.free_bytes is None else f", {size(folder.free_bytes)} free"
        yield folder.purpose, f"{folder.path}{free}"


def _tested(test: "SelfTest | str | None") -> Iterator[tuple[str, str]]:
    if test is None or isinstance(test, str):
        yield "self-test", "not made" if test is None else "failed"
        return
    same = test.replies - test.different
    yield (
        "self-test",
        (
            f"{same} of {test.replies} replies the same with and without drafting, "
            f"{test.accepted} of {test.drafted} drafted tokens accepted, {test.seconds:.0f} s"
        ),
    )
    plain, drafted = test.plain_tokens_per_s, test.tokens_per_s
    if plain is not None and drafted is not None:
        yield "speed", f"{plain:.0f} tokens/s plain, {drafted:.0f} with drafting"
