import pytest
from gguf_files import write_tiny_llama
from toy_engine import toy_engine

from akunu_py.server.worker import Worker


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
        made.append(Worker(engine or toy, **options))
        return made[-1]

    yield make
    for worker in made:
        worker.close()
