"""One engine over the tiny model for all tests of the engine."""

import pytest

from akunu_py import Engine


@pytest.fixture(scope="module")
def shared_engine(tiny_gguf):
    with Engine.load(tiny_gguf) as engine:
        yield engine


@pytest.fixture
def engine(shared_engine):
    shared_engine.reset()
    return shared_engine
