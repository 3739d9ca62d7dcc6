"""Engines that several modules share: over the tiny model, and over the pair that ships."""

import pytest
from gguf_files import write_tiny_llama

from akunu_py import Engine


@pytest.fixture(scope="module")
def shared_engine(tiny_gguf):
    with Engine.load(tiny_gguf) as engine:
        yield engine


@pytest.fixture
def engine(shared_engine):
    shared_engine.reset()
    return shared_engine


@pytest.fixture(scope="session")
def tiny_draft(tmp_path_factory):
    """The tiny model's smaller relative: the same vocabulary, other weights, one layer."""
    path = tmp_path_factory.mktemp("draft") / "draft.gguf"
    return write_tiny_llama(path, tied=False, seed=9, layers=1)


@pytest.fixture(scope="module")
def pair(default_model):
    """The shipped model with the shipped draft model."""
    draft = default_model.with_name("akunu-tiny-draft.gguf")
    with Engine.load(default_model, draft_model=draft) as engine:
        yield engine
