"""What commands that measure have in common: options, the model, and how they report."""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import click

from akunu_py.bench.workloads import CATEGORIES
from akunu_py.cli import completing
from akunu_py.cli.bench_tables import end_command, print_tables
from akunu_py.cli.command import option, stack, typed_name
from akunu_py.cli.count_progress import Count, count_progress
from akunu_py.cli.loading_options import (
    LoadingOptions,
    check_fits,
    load_engine,
    loading_options,
    model_argument,
    model_path,
    recorded,
)
from akunu_py.cli.reply_options import check_short_temperature
from akunu_py.cli.terminal import let_others_end

if TYPE_CHECKING:
    from akunu_py.bench.result_file import BenchResult, Failure
    from akunu_py.bench.run import BenchRun
    from akunu_py.bench.workloads import Prompt
    from akunu_py.engine.engine import Engine
    from akunu_py.models.requirements import Requirements
    from akunu_py.protocols import Tokenizer

_CONVERTED = "metadata.gguf"
"""What holds the tokenizer of a model that `akunu models convert` wrote."""

Option = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(kw_only=True)
class Measurement:
    """What a measuring command was told by the options of `measuring`, and what it does with them.

    A subclass may add fields, with an option of the same name for each in `output_options`, and
    keep results in its own way.
    """

    output_options: ClassVar[tuple[Option, ...]] = (
        click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON."),
        click.option(
            "--output",
            type=click.Path(path_type=Path),
            metavar="DIR|FILE.json",
            help="Keep the result as FILE.json, or as result.json in DIR.",
        ),
    )

    command: str
    model: str | None = None
    loading: LoadingOptions | None = None
    categories: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    limit: int | None = None
    """Prompts of each category, or items of each file; None: all."""

    quick: bool = False
    drafters: tuple[str, ...] = ()
    seed: int = 0
    temperature: float = 0.0
    as_json: bool = False
    output: Path | None = None

    @staticmethod
    def fix_threads(number: int) -> None:
        """Compute with this many threads, whatever other programs do."""
        from akunu_py.cpu.blas import fix_threads  # not for --help

        fix_threads(number)

    def check(self) -> None:
        """Refuse options that do not go together, before a model is loaded.

        Raises click's UsageError, and ConfigError for an output that holds something else.
        """
        if self.result_file is None:
            return
        from akunu_py.bench.result_file import BenchResult  # not for --help
        from akunu_py.system.errors import ConfigError

        path = self.result_file
        if path != self.output and path.parent.is_file():
            raise click.UsageError(
                f"--output {self.output} is a file; give a folder, or a name that ends in .json"
            )
        if not path.absolute().parent.is_dir() and path == self.output:
            raise ConfigError(
                f"the folder {path.parent} does not exist; make it, or write elsewhere"
            )
        if path.is_file():
            try:
                held = BenchResult.read(path).command
            except ConfigError:
                raise ConfigError(
                    f"{path} exists and is not a result of akunu bench; give another name"
                ) from None
            if held != self.command:
                raise ConfigError(
                    f"{path} is a result of `akunu bench {held:.40}`, and this is "
                    f"`akunu bench {self.command}`; give --output another place"
                )

    @property
    def result_file(self) -> Path | None:
        """The file that gets the result, if any."""
        if self.output is None or (self.output.suffix == ".json" and not self.output.is_dir()):
            return self.output
        return self.output / "result.json"

    @property
    def settled(self) -> dict[str, Any]:
        """The model and the options of loading that the command has, by name, for its result."""
        loading = {} if self.loading is None else recorded(self.loading)
        return {"model": self.model, **loading}

    def model_path(self, name: str | None = None) -> Path:
        """Return where the model lies, or another by name; it is fetched if it must be."""
        return model_path(self.model if name is None else name)

    def engine(
        self,
        model: str | None = None,
        *,
        beside: "Callable[[Requirements], Mapping[str, int]] | None" = None,
        waits: bool = False,
        **changes: Any,
    ) -> "Engine":
        """Load the command's model, or another by name, with its options of loading.

        Args:
            model: a name, an alias, a file or a folder; None: the command's MODEL.
            beside: from what the model needs to the bytes that other programs will hold, by name;
                what does not fit into memory together is refused.
            waits: whether to wait first until other programs leave the machine alone.
            changes: options of loading to replace, such as `draft_model`.

        Raises ConfigError for what cannot be loaded.
        """
        model = self.model if model is None else model
        loading = replace(self.loading or LoadingOptions(), **changes)
        if waits:
            let_others_end()
        if beside is not None:
            _check_beside(model_path(model), loading, beside)
        return load_engine(model, loading)

    def prompts(self) -> "tuple[list[Prompt], list[Failure]]":
        """Return the prompts that the command was told to use, and lines of files that do not fit.

        Raises ConfigError for a file that cannot be read, UsageError for a category without prompt.
        """
        from akunu_py.bench.prompt_files import read_prompts
        from akunu_py.bench.result_file import Failure
        from akunu_py.bench.workloads import Prompt, first_of_each

        if not self.files:
            return list(Prompt.load(self.categories or None, limit=self.limit)), []
        prompts: dict[str, Prompt] = {}
        failures: list[Failure] = []
        for path in self.files:
            found, failed = read_prompts(path)
            failures += failed
            for prompt in found:
                if prompt.id in prompts:
                    failures.append(Failure(f"{path.name}, {prompt.id}", "the id occurs twice"))
                prompts.setdefault(prompt.id, prompt)
        named = self.categories
        kept = [item for item in prompts.values() if not named or item.category in named]
        for name in named:
            if not any(prompt.category == name for prompt in kept):
                known = ", ".join(sorted({prompt.category for prompt in prompts.values()}))
                raise click.UsageError(f"no prompt is of the category {name!r}; there are {known}")
        return first_of_each(kept, self.limit), failures

    @staticmethod
    def progress(unit: str, waiting: str = "") -> AbstractContextManager[Count]:
        """Give a callback for what is done and what there is to do, in `unit`s, shown on stderr.

        `waiting` is shown until its first call. With --quiet nothing is.
        """
        return count_progress(unit, waiting)

    def begin(
        self,
        arguments: Mapping[str, object],
        *,
        engine: "Engine | None" = None,
        draft: "Engine | None" = None,
    ) -> "BenchRun":
        """Begin a run; `arguments` are the final options by name, enough to repeat it.

        Its `result` of `Findings` has them in its header, and the facts about the `engine` that is
        measured and the `draft` engine beside it, if there are any.
        """
        from akunu_py.bench.run import BenchRun

        return BenchRun(self.command, arguments, engine=engine, draft=draft)

    def emit(self, result: "BenchResult", head: str = "", tail: str = "") -> None:
        """Keep the result and print it; end the command where it did not go well.

        `head` and `tail` are printed above and below the tables on a terminal. Implausible costs,
        failures and an interrupt are named on stderr in every form. Raises click's Exit with 130
        after an interrupt, with 1 where all items failed; ConfigError where a file cannot be
        written, after the result was printed.
        """
        from akunu_py.system.errors import ConfigError

        unwritten: ConfigError | None = None
        try:
            self.keep(result)
        except ConfigError as error:
            # A full disk is told below: what was measured is shown all the same.
            unwritten = error
        text = self.text(result)
        if text is None:
            print_tables(result, head, tail)
        else:
            click.echo(text, nl=False)
        end_command(result, self.hint, unwritten)

    def text(self, result: "BenchResult") -> str | None:
        """Return a result in the form that was asked for; None: tables for people."""
        return result.json() + "\n" if self.as_json else None

    def keep(self, result: "BenchResult") -> None:
        """Write the files of a result; raises ConfigError if that fails."""
        if self.result_file is None:
            return
        from akunu_py.system.errors import ConfigError

        folder = self.result_file.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make {folder}: {error.strerror or error}") from error
        result.write(self.result_file)

    @property
    def hint(self) -> str:
        """What an interrupted run tells a user."""
        return ""


def measuring(
    kind: type[Measurement] = Measurement,
    *,
    model: bool = False,
    loading: Collection[str] | None = None,
    prompts: str = "",
    limit: str = "",
    limit_default: int | None = None,
    quick: int = 0,
    drafters: str = "",
    drafters_default: Sequence[str] = (),
    seed: bool = False,
    temperature: bool = False,
    output: bool = True,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options that measuring commands share; the command gets a `Measurement` first.

    Args:
        kind: `Measurement`, or a subclass that keeps results in its own way.
        model: take MODEL and --model.
        loading: take the options of loading, and of these kinds: "draft_model", "heads".
        prompts: take --category over the "shipped" prompts, or of "files" too, with --prompts.
        limit: take --limit, with this help; `limit_default` is taken when it is left out.
        quick: take --quick, with which so many prompts or items are taken.
        drafters: take --drafter, repeatable, with this help; `drafters_default` when left out.
        seed: take --seed; `temperature` takes --temperature.
        output: take the options of a result: --json and others.
    """
    options: list[Option] = []
    if drafters:
        options.append(_drafter_option(drafters, tuple(drafters_default)))
    options += [_TEMPERATURE] if temperature else []
    options += [_SEED] if seed else []
    if prompts:
        options += [_FILES, _CATEGORY] if prompts == "files" else [_CATEGORY]
    if limit:
        shown = limit if limit_default is None else f"{limit}  [default: {limit_default}]"
        options.append(click.option("--limit", type=click.IntRange(min=1), metavar="N", help=shown))
    options += [_QUICK] if quick else []
    options += kind.output_options if output else []
    declared = click.Command(None)
    for each in options:
        each(declared)
    names = [parameter.name or "" for parameter in declared.params]

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(**given: Any) -> Any:
            shared = {name: given.pop(name) for name in names}
            shared |= {name: given.pop(name) for name in ("model", "loading") if name in given}
            if limit and shared["limit"] is None:
                shared["limit"] = quick if shared.get("quick") else limit_default
            bench = kind(command=click.get_current_context().command.name or "", **shared)
            if output:
                bench.check()
            return function(bench, **given)

        added = stack(options, cast("Callable[..., Any]", wrapped))
        if loading is not None:
            added = loading_options(*loading)(added)
        return model_argument(added) if model else added

    return add


def load_tokenizer(model: str | Path | None = None) -> "Tokenizer":
    """Return the tokenizer of a model by any of its names; weights are not looked at.

    None is the model that ships, whatever the settings' own one is: figures are compared with it.
    Raises ConfigError for what is no model, ModelFormatError for a damaged vocabulary.
    """
    from akunu_py.cli.default_model_offer import fetch_unasked
    from akunu_py.model_store.known_models import default_model_path

    if model is None:
        fetch_unasked()
    path = default_model_path() if model is None else model_path(str(model))
    if path.is_dir() and not (path / _CONVERTED).is_file():
        # mlx-lm takes over a second
        from akunu_py.models.folder_settings import read_folder_config
        from akunu_py.models.folder_tokenizer import FolderTokenizer

        return FolderTokenizer(path, read_folder_config(path))
    from akunu_py.gguf import GGUFFile
    from akunu_py.tokenizers import from_gguf

    if path.is_dir():
        path /= _CONVERTED
    with GGUFFile.open(path) as file:
        return from_gguf(file.metadata)


def _check_beside(
    path: Path,
    loading: LoadingOptions,
    beside: "Callable[[Requirements], Mapping[str, int]]",
) -> None:
    from akunu_py.models.memory_check import MemoryPart  # imports MLX
    from akunu_py.models.requirements import requirements

    if not (path.is_file() or path.is_dir()):
        return
    held = beside(requirements(path, loading.of_model()))
    others = [MemoryPart(name, size) for name, size in held.items()]
    named = loading.draft_model
    placed = replace(loading, draft_model=None if named is None else model_path(str(named)))
    check_fits(path, placed, others)


def _drafter_option(text: str, default: tuple[str, ...]) -> Option:
    shown: dict[str, Any] = {"default": default, "show_default": True} if default else {}
    return click.option(
        "--drafter", "drafters", shell_complete=completing.drafters, multiple=True, metavar="NAME",
        help=text, **shown,
    )  # fmt: skip


def _check_temperature(context: click.Context, parameter: click.Option, given: float) -> float:
    """Refuse a number of threads after -t."""
    check_short_temperature(given, typed_name(parameter, context))
    return given


_CATEGORY = click.option(
    "--category",
    "categories",
    multiple=True,
    metavar="NAME",
    help=f"Use the prompts of this category; repeatable: {', '.join(CATEGORIES)}. All, when left "
    "out.",
)
_FILES = click.option(
    "--prompts",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Use the prompts of this file, one a line, instead of the shipped ones; repeatable.",
)
_TEMPERATURE = option(
    "-t", "--temperature", also=("--temp",), type=float, default=0.0, show_default=True,
    callback=_check_temperature, help="0 takes the likeliest token; above 0 tokens are drawn.",
)  # fmt: skip
_SEED = option("-s", "--seed", type=int, default=0, show_default=True, help="Seed of the noise.")
_QUICK = click.option(
    "--quick",
    is_flag=True,
    help="Take few items: seconds of a replay, minutes of the default model on two cores. Other "
    "options, such as --limit, override its numbers.",
)
