import pytest
from gguf_files import write_tiny_llama
from kept_worker import Worker
from toy_engine import toy_engine

from akunu_py.server.events import ReplyEvents


class SeenEvents(ReplyEvents):
    """Events that a test can look at before they are read."""

    def __init__(self):
        super().__init__()
        self.seen, self.over = [], False

    def put(self, event):
        self.seen.append(event)
        super().put(event)

    def end(self, error=None):
        self.over = True
        super().end(error)


class SeenWorker(Worker):
    """A worker whose jobs have events to look at, and whose lanes' sessions are known."""

    def __init__(self, models, **options):
        self.sessions = []
        super().__init__(models, **options)
        resident = self.models.default.resident
        take = resident.take_lane

        def take_lane():
            lane = take()
            if lane.session not in self.sessions:
                self.sessions.append(lane.session)
            return lane

        resident.take_lane = take_lane

    def ask(self, *arguments, **options):
        job = super().ask(*arguments, **options)
        if self.health().state != "ok":  # else the thread may have begun it
            job.events = SeenEvents()
        return job


@pytest.fixture(scope="session")
def roomy_gguf(tmp_path_factory):
    """The tiny model of `tiny_gguf` with a context of 2,048 tokens."""
    path = tmp_path_factory.mktemp("roomy") / "roomy.gguf"
    return write_tiny_llama(path, tied=False, seed=3, context=2048)


@pytest.fixture(scope="module")
def shared_toy():
    with toy_engine() as engine:
        yield engine


@pytest.fixture
def toy(shared_toy):
    """An engine over a tiny random llama."""
    shared_toy.forget()
    return shared_toy


@pytest.fixture
def make_worker(toy):
    """Make workers whose turns the test makes; they are closed at its end."""
    made = []

    def make(engine=None, **options):
        made.append(SeenWorker(engine or toy, **options))
        return made[-1]

    yield make
    for worker in made:
        worker.close()
