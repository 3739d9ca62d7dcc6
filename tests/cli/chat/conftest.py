"""Models for conversations."""

import pytest
from fake_chat import FakeEngine
from gguf_files import write_tiny_llama

from akunu_py.engine.conversation import Conversation
from akunu_py.values.types import GenerationConfig


@pytest.fixture(scope="session")
def roomy_gguf(tmp_path_factory):
    """A random llama with sentencepiece, context 2,048."""
    return write_tiny_llama(
        tmp_path_factory.mktemp("roomy") / "roomy.gguf", vocabulary="spm", tied=False,
        context=2048,
    )  # fmt: skip


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def conversation(engine):
    return Conversation(engine, GenerationConfig(), None)
