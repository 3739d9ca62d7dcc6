"""A server over an engine, whose worker runs in its thread."""

import contextlib

from kept_worker import Worker
from scripted_server import running

from akunu_py.server.engine_backend import EngineBackend
from akunu_py.server.prefix_cache import PrefixCache


@contextlib.contextmanager
def serving(engine, *, defaults=None, cache_bytes=1 << 26, disk=None, **options):
    """The server of an engine that stays open; `options` are those of a worker."""
    worker = Worker(engine, **{"parallel": 1, **options}, cache=PrefixCache(cache_bytes, disk))
    worker.start()
    try:
        with running(EngineBackend(worker), defaults=defaults) as server:
            server.worker = worker
            yield server
    finally:
        worker.close()
