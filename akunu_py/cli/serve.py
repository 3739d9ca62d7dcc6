"""`akunu serve`: a server for coding agents and other clients."""

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from akunu_py.cli import completing
from akunu_py.cli.command import Command, option, setting
from akunu_py.cli.input_text import GivenPath
from akunu_py.cli.loading_options import (
    LoadingOptions,
    load_engine,
    loading_options,
    model_argument,
    model_path,
)
from akunu_py.cli.ranks import is_follower, on_ranks
from akunu_py.cli.reply_options import generation_options, value_sources
from akunu_py.cli.verbosity import is_quiet
from akunu_py.system.errors import ConfigError, MemoryLimitError, ModelFormatError
from akunu_py.system.settings import load_settings
from akunu_py.system.shown_text import one_line

if TYPE_CHECKING:
    from akunu_py.engine.engine import Engine
    from akunu_py.models.load_steps import Steps
    from akunu_py.models.ranks.link import Link
    from akunu_py.server.model_source import ModelFile
    from akunu_py.server.prefix_cache import PrefixCache
    from akunu_py.server.served_models import ServedModels
    from akunu_py.values.types import GenerationConfig

_log = logging.getLogger(__name__)

_DISK_SHARE = 4
"""Bytes on disk for each byte of the cache in memory."""


class _Amount(click.ParamType[float]):
    """A number with a unit behind it, as in the examples; "off" is 0."""

    def __init__(self, name: str, examples: str, **units: float) -> None:
        self.name, self._examples = name, examples
        self._units = {"": 1.0, **units}

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        text = str(value).strip().upper()
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?) ?([A-Z]*)", "0" if text == "OFF" else text)
        if match is None or match[2] not in self._units:
            self.fail(
                f"{value!r} is not a {self.name}; give one such as {self._examples}", param, ctx
            )
        return float(match[1]) * self._units[match[2]]


_BYTES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = _Amount(
    "size", "4GB or 512MB", **_BYTES, **{f"{unit}B": size for unit, size in _BYTES.items()}
)
_DURATION = _Amount("time", "90s, 30m or 1h", S=1, M=60, H=3600)


@click.command(cls=Command)
@model_argument
@option(
    "--models", multiple=True, metavar="FOLDER|NAMES", shell_complete=completing.models,
    help="Let requests name these models, too: all of FOLDER, or NAME,NAME. They are loaded on "
    "demand, in place of others where memory asks for that; repeatable.",
)  # fmt: skip
@option(
    "--allow-pull", is_flag=True,
    help="Let requests fetch models, as Ollama's clients do; whoever reaches the server can then "
    "fill the disk.",
)  # fmt: skip
@option(
    "--idle-unload", type=_DURATION, default="off", metavar="TIME",
    help="Take a model out of memory after TIME without a request, such as 30m; the next one loads "
    "it again.",
)  # fmt: skip
@option("--host", default="127.0.0.1", metavar="ADDRESS", help="Listen on ADDRESS.")
@option(
    "--port", type=click.IntRange(0, 65535), default=8080, metavar="N",
    help="Listen on port N; 0 takes a free one.",
)  # fmt: skip
@option(
    "--parallel", type=click.IntRange(1, 32), metavar="N",
    help="Make N replies at once; left out, 8 or as many of 4,096 tokens as memory holds.",
)  # fmt: skip
@option(
    "--cache-memory", type=_SIZE, default="4GB", metavar="SIZE",
    help="Keep prompts and replies in SIZE of memory, so that they are not read again.",
)  # fmt: skip
@option(
    "--cache-dir", type=GivenPath(path_type=Path, file_okay=False), metavar="FOLDER",
    help="Keep them in FOLDER, too, privately, so that they survive a restart.",
)  # fmt: skip
@option(
    "--wire", is_flag=True, group="Model",
    help="On a Mac, have macOS keep the weights and 1 GB more in memory, from the first reply on.",
)  # fmt: skip
@option(
    "--api-key-file", type=GivenPath(path_type=Path), metavar="FILE",
    help="Ask for one of the keys in FILE, one a line.",
)  # fmt: skip
@option(
    "--allowed-host", "allowed_hosts", multiple=True, metavar="NAME",
    help="Answer requests to NAME, such as a proxy's; repeatable.",
)  # fmt: skip
@option(
    "--allowed-origin", "allowed_origins", multiple=True, metavar="ORIGIN",
    help="Answer web pages of ORIGIN, such as https://studio.example; repeatable.",
)  # fmt: skip
@setting(
    "queue", type=click.IntRange(0, 10_000), default=512, metavar="N",
    help="Let N requests wait; further ones get an error.",
)  # fmt: skip
@generation_options
@loading_options("draft_model", "heads", "tool_parser", "pooling", ranks=True, shipped_head=True)
def serve(  # noqa: PLR0917 - click passes by name
    model: str | None,
    models: tuple[str, ...],
    allow_pull: bool,
    idle_unload: float,
    host: str,
    port: int,
    parallel: int | None,
    queue: int,
    cache_memory: float,
    cache_dir: Path | None,
    wire: bool,
    api_key_file: Path | None,
    allowed_hosts: tuple[str, ...],
    allowed_origins: tuple[str, ...],
    config: "GenerationConfig",
    loading: LoadingOptions,
) -> None:
    """Serve a model to coding agents and other clients, until Ctrl-C.

    The server speaks OpenAI's chat completions, completions and responses, Anthropic's messages and
    Ollama's API (docs/server.md). Only this machine reaches it; for another --host there must be
    --api-key-file. Options of replies hold where a request does not say otherwise. Without a MODEL
    the first of --models answers requests that name none.

    \b
    Examples:
      akunu serve
      akunu serve model.gguf --port 8000 --cache-dir ~/.cache/akunu-rows
      akunu serve --models ~/models --idle-unload 30m
      akunu serve model.gguf --host 0.0.0.0 --api-key-file keys.txt
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.model_store.choice import choice_of_models  # not for --help
    from akunu_py.server.app import make_app
    from akunu_py.server.disk_tier import make_folder  # imports MLX
    from akunu_py.server.pulls import Pulls
    from akunu_py.server.running import ending_by_signals, listen, server_of
    from akunu_py.server.security import Access, read_key_file
    from akunu_py.server.service import Service

    loading = replace(loading, wired=wire)
    if on_ranks():
        _check_for_ranks(models, allow_pull, idle_unload, cache_dir)
    if cache_dir is not None:
        make_folder(cache_dir)
    if is_follower():
        # The port is rank 0's.
        load_engine(model, loading, several=True, replies=False)
    access = Access(
        host=host,
        key_digests=() if api_key_file is None else read_key_file(api_key_file),
        hosts=allowed_hosts,
        origins=allowed_origins,
    )
    first = model_path(model) if model is not None or not models else None
    left_out: list[str] = []
    paths = choice_of_models(models, load_settings(), left_out.append, first=first)
    # Before the model is loaded, which takes longer.
    with listen(host, port) as listening:
        from akunu_py.server.engine_backend import EngineBackend  # imports MLX
        from akunu_py.server.worker import Worker

        served, adopt = _served_models(
            paths, left_out, loading, named=first is not None, model=model,
            limit=int(cache_memory), folder=cache_dir, idle_s=idle_unload,
        )  # fmt: skip
        worker = Worker(served, parallel=parallel, places=queue)
        given = value_sources(click.get_current_context())
        service = Service(EngineBackend(worker), config, given)
        if allow_pull:
            service.pulls = Pulls(adopt)

        def end_replies() -> None:
            worker.stop()
            if service.pulls is not None:
                service.pulls.stop()

        server = server_of(make_app(service, access), end_replies=end_replies)
        worker.start()
        with ending_by_signals(server):
            try:
                if not is_quiet():
                    for reason in left_out:
                        click.echo(one_line(f"left out: {reason}"), err=True)
                    name = f"[{host}]" if ":" in host else host
                    address = f"http://{name}:{listening.getsockname()[1]}"
                    others = len(list(served)) - 1
                    more = f" and {others} more" if others else ""
                    if (ranks := worker.engine.ranks) is not None:
                        more = f" on {ranks.size} ranks"
                    name = served.default.description.name
                    places = worker.health().places
                    replies = "one reply" if places == 1 else f"up to {places} replies"
                    click.echo(
                        f"{name}{more} at {address}, in a browser too, {replies} at once; "
                        "Ctrl-C ends it", err=True,
                    )  # fmt: skip
                server.run(sockets=[listening])
            finally:
                worker.close()


def _check_for_ranks(
    models: tuple[str, ...], allow_pull: bool, idle_unload: float, cache_dir: Path | None
) -> None:
    """Refuse what a server does not do on several ranks."""
    for given, option_name, reason in (
        (models, "--models", "a server on several ranks has one model"),
        (allow_pull, "--allow-pull", "a server on several ranks has one model"),
        (idle_unload, "--idle-unload", "a model on several ranks stays loaded"),
        (cache_dir, "--cache-dir", "the cached rows of several ranks are not written to disk"),
    ):
        if given:
            raise click.UsageError(f"{reason}; leave {option_name} out")


def _served_models(
    paths: dict[str, Path],
    left_out: list[str],
    loading: LoadingOptions,
    *,
    named: bool,
    model: str | None,
    limit: int,
    folder: Path | None,
    idle_s: float,
) -> tuple["ServedModels", Callable[[str, Path], None]]:
    """Load the first model, as `load_engine` does, and return it with the others.

    The second value adds a model that was fetched: by the name asked for, and its path.

    If it was `named`, it is `model`, and has to load. What cannot be served of the others is left
    out, with a line for each.
    """
    from akunu_py.model_store.choice import name_among
    from akunu_py.models.memory_check import available_memory, planned_models  # imports MLX
    from akunu_py.models.rank_split import PlannedGroup
    from akunu_py.server.model_source import ModelFile, readable
    from akunu_py.server.served_models import ServedModels

    def source(
        name: str, path: Path, options: LoadingOptions, ranks: "Link | None" = None
    ) -> ModelFile:
        group = None if ranks is None else PlannedGroup(ranks.rank, ranks.size)
        planned = planned_models(path, options, group)
        return ModelFile(name, planned, options, checked=not options.force)

    # Adapter, draft model, heads, parser and pooling belong to one model, so the others have none.
    alone = replace(
        loading, adapter=None, draft_model=None, heads=None, tool_parser=None, pooling=None
    )
    sources = [source(name, path, alone) for name, path in paths.items()]
    if named:
        engine = load_engine(model, loading, several=True, replies=False)
        sources[1:] = readable(sources[1:], left_out.append)
    else:
        sources = readable(sources, left_out.append)
        engine = _first_that_loads(sources, left_out, loading)
    default = sources[0].id
    chosen = engine.options
    loading = replace(loading, draft_model=chosen.draft_model, heads=chosen.heads)
    sources[0] = source(default, paths[default], loading, engine.ranks)
    served = ServedModels(
        sources,
        lambda engine: _prefix_cache(engine, limit, folder),
        engine=engine,
        cache_limit=limit,
        idle_s=idle_s or None,
        available=available_memory if engine.ranks is None else engine.ranks.available_memory,
    )

    def adopt(name: str, path: Path) -> None:
        known = {model.id: paths[model.id] for model in served}
        if (id_ := name_among(path, known)) not in known:
            served.add(source(id_, path, alone))
            paths[id_] = path
        served.call(id_, name)

    return served, adopt


def _first_that_loads(
    sources: list["ModelFile"], left_out: list[str], loading: LoadingOptions
) -> "Engine":
    """Load the first model that can be, and take those before it off the list."""
    while sources:
        try:
            own = replace(loading, context=sources[0].context)
            return load_engine(str(sources[0].path), own, several=True, replies=False)
        except (ModelFormatError, MemoryLimitError) as error:
            left_out.append(f"{sources[0].path}: {error.message}")
            del sources[0]
    raise ConfigError("none of the models can be served:", choices=left_out)


def _prefix_cache(engine: "Engine", limit: int, folder: Path | None) -> "Steps[PrefixCache]":
    """Make the cache of a model that was loaded; with a folder, its weights are read for that."""
    from akunu_py.server.prefix_cache import PrefixCache  # imports MLX

    if folder is None:
        return PrefixCache(limit)
    from akunu_py.server.disk_tier import DiskTier

    lane = engine.lane()
    digest = yield from lane.session.digest()
    lane.close()
    try:
        disk = DiskTier(folder, _DISK_SHARE * limit, digest)
    except ConfigError as error:
        # It could be made when the server began.
        _log.warning("rows are kept in memory alone: %s", error)
        return PrefixCache(limit)
    return PrefixCache(limit, disk)
