"""A worker over an engine of a test: its model stays in memory, and the engine stays open."""

from akunu_py import Engine
from akunu_py.server import worker
from akunu_py.server.model_source import served_model
from akunu_py.server.prefix_cache import PrefixCache
from akunu_py.server.served_models import ServedModels
from akunu_py.server.worker import Prepared


class KeptModel:
    """Stands for the file of a model that is in memory already, where memory limits no reply."""

    def __init__(self, engine):
        self._engine = engine
        self.id = self.describe().id

    def describe(self):
        return served_model(self._engine)

    def loading(self):
        return 0

    def rows(self, tokens):
        return 0

    def largest_pass(self, tokens, replies):
        return 0

    def open(self, available):
        raise AssertionError("the model is never loaded")


class KeptModels(ServedModels):
    """An engine's model alone, with a cache of its own."""

    def __init__(self, engine, cache=None):
        def make_cache(_engine):
            yield from ()
            return PrefixCache(0) if cache is None else cache

        super().__init__([KeptModel(engine)], make_cache, engine=engine)

    def close(self):
        self.default.resident.close()


class Worker(worker.Worker):
    """A worker over some models, or over an engine, whose calls a test checks itself."""

    def __init__(self, models, *, cache=None, **options):
        if isinstance(models, Engine):
            models = KeptModels(models, cache)
        super().__init__(models, **options)

    def submit(self, call, *, client="", checkpoints=None, respell=False, prediction=()):
        prepared = Prepared(call, dict(checkpoints or {}), prediction)
        return self.ask(lambda _: prepared, client=client, respell=respell)
