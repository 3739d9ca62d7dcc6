import pytest
from scripted_server import ScriptedBackend, running


@pytest.fixture(scope="module")
def shared_server():
    with running() as server:
        yield server


@pytest.fixture
def server(shared_server):
    """A server with a scripted backend, which says "Hello world" unless a test gives a script."""
    shared_server.backend.__init__()
    return shared_server


@pytest.fixture
def backend(server) -> ScriptedBackend:
    return server.backend
