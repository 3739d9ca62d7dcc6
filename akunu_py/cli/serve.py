"""`akunu serve`: a server for coding agents and other clients."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from akunu_py.cli.command import Command, option
from akunu_py.cli.input_text import GivenPath
from akunu_py.cli.loading_options import (
    counts_option,
    draft_model_option,
    load_engine,
    model_argument,
    model_options,
)
from akunu_py.cli.reply_options import generation_options
from akunu_py.cli.verbosity import is_quiet

if TYPE_CHECKING:
    from akunu_py.engine.engine import Engine
    from akunu_py.server.prefix_cache import PrefixCache
    from akunu_py.types import GenerationConfig

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_DISK_SHARE = 4
"""Bytes on disk for each byte of the cache in memory."""


class _Size(click.ParamType[int]):
    """A number of bytes, such as 4GB or 512MB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?) ?([KMGT]?)B?", str(value).strip().upper())
        if match is None:
            self.fail(f"{value!r} is not a size; give one such as 4GB or 512MB", param, ctx)
        return int(float(match[1]) * _UNITS[match[2]])


@click.command(cls=Command)
@model_argument
@option("--host", default="127.0.0.1", metavar="ADDRESS", help="Listen on ADDRESS.")
@option(
    "--port", type=click.IntRange(0, 65535), default=8080, metavar="N",
    help="Listen on port N; 0 takes a free one.",
)  # fmt: skip
@option(
    "--parallel", type=click.IntRange(1, 64), default=4, metavar="N",
    help="Make N replies at once.",
)  # fmt: skip
@option(
    "--queue", type=click.IntRange(0, 10_000), default=32, metavar="N",
    help="Let N requests wait; further ones get an error.",
)  # fmt: skip
@option(
    "--cache-memory", type=_Size(), default="4GB", metavar="SIZE",
    help="Keep prompts and replies in SIZE of memory, so that they are not read again.",
)  # fmt: skip
@option(
    "--cache-dir", type=GivenPath(path_type=Path, file_okay=False), metavar="FOLDER",
    help="Keep them in FOLDER, too, privately, so that they survive a restart.",
)  # fmt: skip
@option(
    "--api-key-file", type=GivenPath(path_type=Path), metavar="FILE", group="Access",
    help="Ask for one of the keys in FILE, one a line.",
)  # fmt: skip
@option(
    "--allowed-host", "allowed_hosts", multiple=True, metavar="NAME", group="Access",
    help="Answer requests to NAME, such as a proxy's; repeatable.",
)  # fmt: skip
@option(
    "--allowed-origin", "allowed_origins", multiple=True, metavar="ORIGIN", group="Access",
    help="Answer web pages of ORIGIN, such as http://localhost:3000; repeatable.",
)  # fmt: skip
@generation_options
@model_options
@draft_model_option
@counts_option
def serve(  # noqa: PLR0917 - click passes by name
    model: str | None,
    host: str,
    port: int,
    parallel: int,
    queue: int,
    cache_memory: int,
    cache_dir: Path | None,
    api_key_file: Path | None,
    allowed_hosts: tuple[str, ...],
    allowed_origins: tuple[str, ...],
    config: "GenerationConfig",
    loading: dict[str, Any],
) -> None:
    """Serve a model to coding agents and other clients, until Ctrl-C.

    The server speaks OpenAI's chat completions, completions and responses and Anthropic's messages
    (docs/server.md). Only this machine reaches it; for another --host there must be --api-key-file.
    Options of replies hold where a request does not say otherwise.

    \b
    Examples:
      akunu serve
      akunu serve model.gguf --port 8000 --cache-dir ~/.cache/akunu-rows
      akunu serve model.gguf --host 0.0.0.0 --api-key-file keys.txt
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from akunu_py.server.app import make_app  # noqa: PLC0415 - not for --help
    from akunu_py.server.running import listen, server_of  # noqa: PLC0415
    from akunu_py.server.security import Access, read_key_file  # noqa: PLC0415
    from akunu_py.server.service import Service  # noqa: PLC0415

    access = Access(
        host=host,
        key_digests=() if api_key_file is None else read_key_file(api_key_file),
        hosts=allowed_hosts,
        origins=allowed_origins,
    )
    # Before the model is loaded, which takes longer.
    with listen(host, port) as listening, load_engine(model, loading) as engine:
        from akunu_py.server.engine_backend import EngineBackend  # noqa: PLC0415 - MLX
        from akunu_py.server.worker import Worker  # noqa: PLC0415

        cache = _prefix_cache(engine, cache_memory, cache_dir)
        worker = Worker(engine, parallel=parallel, places=queue, cache=cache)
        worker.start()
        try:
            service = Service(EngineBackend(worker, places=parallel), config)
            if not is_quiet():
                name = f"[{host}]" if ":" in host else host
                address = f"http://{name}:{listening.getsockname()[1]}"
                click.echo(f"{engine.description.name} at {address}; Ctrl-C ends it", err=True)
            server_of(make_app(service, access)).run(sockets=[listening])
        finally:
            worker.close()


def _prefix_cache(engine: "Engine", limit: int, folder: Path | None) -> "PrefixCache":
    from akunu_py.server.prefix_cache import PrefixCache  # noqa: PLC0415 - MLX

    if folder is None:
        return PrefixCache(limit)
    from akunu_py.server.disk_tier import DiskTier  # noqa: PLC0415

    lane = engine.lane()
    digest = lane.session.digest()
    lane.close()
    return PrefixCache(limit, DiskTier(folder, _DISK_SHARE * limit, digest))
