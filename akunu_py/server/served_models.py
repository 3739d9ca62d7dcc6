"""The models of a server: which there are, which are in memory, and what must go for others.

The list is made at start, and `--allow-pull` adds to it. A request names one of it: no name from
the network is ever a path. Where memory does not hold everything, cached KV entries of the least
recently used model go first, then idle models.

The worker's thread alone loads and unloads. It loads in steps, between which replies go on. What
needs no MLX, such as reading a file's header and its tokenizer, is done in a thread of its own.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from akunu_py.decoding.shared_passes import SharedPasses
from akunu_py.drafting import AutoState, vocabulary_fingerprint
from akunu_py.engine.engine import Engine
from akunu_py.engine.lane import Lane
from akunu_py.models.device import Pressure, free_buffers, pressure_reader
from akunu_py.models.load_steps import Steps, finish
from akunu_py.models.memory_check import available_memory
from akunu_py.server.backend import ServedModel
from akunu_py.server.model_source import ModelFile, served_model
from akunu_py.server.prefix_cache import PrefixCache
from akunu_py.server.respelling import Respelling
from akunu_py.system.errors import ConfigError

_log = logging.getLogger(__name__)

_LOOK_S = 2.0
"""Least seconds between two looks at how short of memory the machine is."""

_CLIENTS = 64
"""Clients whose replies `auto` remembers, the latest; a full memory takes about 40 MB."""

_MOST_NAMES = 100
"""By which one model is called; addresses can be written in any number of ways."""

LoadSteps = Generator[Future[Any] | None, None, bool]
"""The steps of a load; one that yields a future has nothing to do until it is done.

The result says whether what was loaded is in memory.
"""


def no_cache(engine: Engine) -> Steps[PrefixCache]:
    """Make a cache that keeps nothing."""
    del engine
    yield
    return PrefixCache(0)


class Resident:
    """A model in memory and what belongs to it there: lanes, cached KV entries, spelling."""

    def __init__(self, engine: Engine, cache: PrefixCache) -> None:
        self.engine = engine
        engine.compares_rows = False  # no API has a field for it
        self.cache = cache
        self.spelling = Respelling(engine.tokenizer)
        self._lanes: list[Lane] = []
        self._free: list[Lane] = []

    @cached_property
    def shared(self) -> SharedPasses:
        """The account of the passes that replies share; the first one reads costs from disk."""
        return self.engine.shared_passes()

    def take_lane(self) -> Lane:
        """Return a lane that no reply uses."""
        if not self._free:
            self._lanes.append(self.engine.lane())
            return self._lanes[-1]
        return self._free.pop()

    def give_back(self, lane: Lane) -> None:
        """Take a lane back."""
        self._free.append(lane)

    def store(self, *, wait: bool = True) -> bool:
        """Write some KV entries to disk, as `PrefixCache.store` does."""
        return bool(self._lanes) and self.cache.store(self._lanes[0].session, wait=wait)

    def close(self) -> None:
        """Store the cached KV entries, and drop them with the lanes; the engine stays open."""
        while self.store():
            pass
        self.cache.close()
        self._free.clear()
        while self._lanes:
            self._lanes.pop().close()


class Served:
    """A model that requests may name, in memory or not."""

    def __init__(self, source: ModelFile, description: ServedModel) -> None:
        self.source = source
        """What it is loaded from."""
        self.description = description
        self.lock = threading.Lock()
        """Held by who uses the engine's tokenizer, and to unload."""
        self.resident: Resident | None = None
        self.clients = ClientMemories()
        """What `auto` learned from each client's replies."""
        self.used = 0.0
        """When the last reply began or ended."""
        self.leaves = False
        """Whether the model leaves memory when no reply is under way, unless one needs it."""
        self._vocabulary = ""

    @property
    def id(self) -> str:
        return self.description.id

    def enter(self, resident: Resident) -> None:
        """Take note that the model is in memory."""
        description = served_model(resident.engine)
        vocabulary = vocabulary_fingerprint(resident.engine.tokenizer.token_texts())
        if vocabulary != self._vocabulary:
            # Another file took the place of the one that was loaded before.
            self._vocabulary, self.clients = vocabulary, ClientMemories()
        with self.lock:
            names = self.description.names
            self.description = replace(description, id=self.id, names=names)
            self.resident = resident

    def leave(self) -> Resident:
        """Take note that the model leaves the memory; return what is to be closed."""
        with self.lock:
            self.description = replace(self.description, loaded=False)
            resident, self.resident = self.resident, None
        assert resident is not None  # noqa: S101 - of a model in memory
        return resident


@dataclass(slots=True)
class Counts:
    """How often models were loaded, evicted for others, and unloaded because nobody used them."""

    loads: int = 0
    evictions: int = 0
    unloads: int = 0


class ServedModels:
    """Models by name, the default first; those in memory share the limit of cached KV entries.

    `engine` is the default one's, if it is loaded already; it is closed when the model leaves the
    memory. `make_cache` makes, in steps, the cache of a model that was loaded. A model without a
    request for `idle_s` seconds leaves the memory; None keeps it. `available` reads how many bytes
    can be taken.

    Requests may read `loading` and descriptions, and add models, from any thread. The rest is for
    the worker's.
    """

    def __init__(
        self,
        sources: Sequence[ModelFile],
        make_cache: Callable[[Engine], Steps[PrefixCache]] = no_cache,
        *,
        engine: Engine | None = None,
        cache_limit: int | None = None,
        idle_s: float | None = None,
        available: Callable[[], int] = available_memory,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_cache = make_cache
        self._cache_limit = cache_limit
        self._idle_s = idle_s
        self._available = available
        self._clock = clock
        self._pressure = pressure_reader()
        self._look_at = 0.0
        self.loading = ""
        """Name of the model that is being loaded; "" for none."""
        self.counts = Counts()
        self._models: dict[str, Served] = {}
        for source in sources:
            loaded = engine if not self._models else None
            known = source.describe() if loaded is None else served_model(loaded)
            model = self._models[source.id] = Served(source, replace(known, id=source.id))
            if loaded is not None:
                finish(self._enter(model, loaded))

    def __iter__(self) -> Iterator[Served]:
        return iter(self._models.values())

    @property
    def default(self) -> Served:
        """Return the model of requests that name none."""
        return next(iter(self._models.values()))

    def named(self, name: str) -> Served:
        """Return a model; raises ConfigError for an unknown name."""
        if name not in self._models:
            raise ConfigError(f"there is no model named {name!r:.100}")
        return self._models[name]

    def add(self, source: ModelFile) -> None:
        """Let requests name a further model; from any thread, one at a time.

        Raises what `describe` does.
        """
        model = Served(source, replace(source.describe(), id=source.id))
        # A new table, since others may be going through this one.
        self._models = {**self._models, source.id: model}

    def call(self, id_: str, name: str) -> None:
        """Let requests call a model by a further name, too; from any thread."""
        model = self.named(id_)
        with model.lock:
            names = model.description.names
            if len(names) < _MOST_NAMES:
                model.description = replace(model.description, names=names | {name})

    @property
    def residents(self) -> list[Resident]:
        """Return the models in memory, the least recently used first."""
        found = [(model.used, place) for model in self if (place := model.resident) is not None]
        return [resident for _, resident in sorted(found, key=lambda pair: pair[0])]

    def load(
        self, model: Served, busy: Callable[[], Collection[Served]], growth: Callable[[], int]
    ) -> LoadSteps:
        """Load a model in steps; a load that is dropped leaves nothing.

        Other models leave the memory where it asks for that, but those that are `busy`. Replies
        under way may still add `growth` bytes. The result is False if replies have to end first.
        Raises AkunuError if the model cannot be loaded.
        """
        source = model.source
        self.loading = model.id
        try:
            room = yield from self._make_room(source.loading(), model, busy, growth)
            # Alone, a model is refused by its own check, which says what it needs.
            if not room and busy():
                return False
            started = time.perf_counter()
            with ThreadPoolExecutor(1, "akunu opens a model") as pool:
                opening = pool.submit(source.open, self._available())
                while not opening.done():
                    yield opening
            engine = yield from opening.result()
            try:
                yield None
                yield from self._enter(model, engine)
            except BaseException:
                engine.close()
                raise
        finally:
            self.loading = ""
        _log.info("loaded %s in %.1f s", model.id, time.perf_counter() - started)
        return True

    def touch(self, model: Served) -> None:
        """Take note that a model is used."""
        model.used, model.leaves = self._clock(), False

    def free_rows(self, needed: int, reused: int = 0) -> bool:
        """Drop cached KV entries until `needed` bytes are available; return whether they are.

        Where dropping all would not do, none are: not even those that would be `reused`, so many
        bytes, and would be needed without.
        """
        if self._available() < needed > self._available() + self.cache_bytes - reused:
            return False
        for resident in self.residents:
            while needed > self._available():
                if not resident.cache.drop_one():
                    break
                _log.info("memory is short: cached rows were dropped")
        return needed <= self._available()

    def trim(self) -> None:
        """Drop cached KV entries beyond the limit that all models share."""
        if self._cache_limit is None:
            return
        for resident in self.residents:
            while self.cache_bytes > self._cache_limit and resident.cache.drop_one():
                pass

    def relieve(self) -> None:
        """On a Mac that is short of memory, give back half of the cached KV entries, or all.

        Looks every two seconds at most, so a warning that stays soon takes all as well. Caches with
        a disk write first.
        """
        if self._pressure is None or not self.cache_bytes or self._clock() < self._look_at:
            return
        self._look_at = self._clock() + _LOOK_S
        pressure = self._pressure()
        if pressure is Pressure.NORMAL:
            return
        before = self.cache_bytes
        kept = before // 2 if pressure is Pressure.WARN else 0
        for resident in self.residents:
            while self.cache_bytes > kept and resident.store():
                pass
            while self.cache_bytes > kept and resident.cache.drop_one():
                pass
        free_buffers()
        dropped = (before - self.cache_bytes) / 1e6
        _log.info("macOS is short of memory: %.0f MB of cached rows were dropped", dropped)

    @property
    def cache_bytes(self) -> int:
        """Return the bytes of all cached KV entries."""
        return sum(resident.cache.nbytes for resident in self.residents)

    def tidy(self) -> None:
        """Unload a model that nobody used for long, or that is to leave."""
        for model in self:
            if (left := self.idle_left(model)) is not None and left <= 0:
                self.counts.unloads += 1
                idle_s = self._clock() - model.used
                _log.info("unloaded %s after %.0f s without a reply", model.id, idle_s)
                self._unload(model)
                return

    def store(self) -> None:
        """Write KV entries to disk that wait for it, beside the replies."""
        for model in self:
            resident = model.resident
            if resident is not None and resident.cache.store_in() == 0:
                resident.store(wait=False)

    def tidy_in(self) -> float | None:
        """Return in how many seconds `tidy`, `store` or `relieve` has work; None for never."""
        caches = [model.resident.cache for model in self if model.resident is not None]
        waits = [left for model in self if (left := self.idle_left(model)) is not None]
        waits += [left for cache in caches if (left := cache.store_in()) is not None]
        if self._pressure is not None and self.cache_bytes:
            waits.append(self._look_at - self._clock())
        return max(0.0, min(waits)) if waits else None

    def close(self) -> None:
        """Close all models in memory."""
        for model in self:
            if model.resident is not None:
                self._unload(model)

    def _make_room(
        self,
        needed: int,
        wanted: Served,
        busy: Callable[[], Collection[Served]],
        growth: Callable[[], int],
    ) -> Steps[bool]:
        """Evict idle models, and cached rows where that is enough; return whether there is room."""
        while needed + growth() > self._available() + self.cache_bytes:
            other = self._least_used(wanted, busy())
            if other is None:
                return False
            while other.resident is not None and other.resident.store():
                yield
            self.counts.evictions += 1
            _log.info("unloaded %s to make room for %s", other.id, wanted.id)
            self._unload(other)
        return self.free_rows(needed + growth())

    def _least_used(self, wanted: Served, busy: Collection[Served]) -> Served | None:
        """Return the least recently used model that may go for another, or None."""
        idle = [
            model for model in self if model is not wanted and model.resident and model not in busy
        ]
        return min(idle, key=lambda model: model.used, default=None)

    def _enter(self, model: Served, engine: Engine) -> Steps[None]:
        cache = yield from self._make_cache(engine)
        self.counts.loads += 1
        self.touch(model)
        model.enter(Resident(engine, cache))

    def _unload(self, model: Served) -> None:
        resident = model.leave()
        resident.close()
        # Last, since it also frees the memory that MLX keeps of deleted arrays.
        resident.engine.close()

    def idle_left(self, model: Served) -> float | None:
        """Return the seconds until a model may leave the memory; None if it stays."""
        if model.resident is None:
            return None
        if model.leaves:
            return 0.0
        if self._idle_s is None:
            return None
        return model.used + self._idle_s - self._clock()


class ClientMemories:
    """What `auto` learned from each client's replies; no client's drafts come from another's."""

    def __init__(self) -> None:
        self._states: OrderedDict[str, AutoState] = OrderedDict()

    def state(self, client: str) -> AutoState:
        """Return a client's state, a new one for an unknown client."""
        state = self._states.setdefault(client, AutoState())
        self._states.move_to_end(client)
        if len(self._states) > _CLIENTS:
            self._states.popitem(last=False)
        return state
