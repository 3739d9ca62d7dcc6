"""Models for conversations."""

import pytest
from gguf_files import write_tiny_llama


@pytest.fixture(scope="session")
def roomy_gguf(tmp_path_factory):
    """A random llama with sentencepiece, context 2,048."""
    return write_tiny_llama(
        tmp_path_factory.mktemp("roomy") / "roomy.gguf", vocabulary="spm", tied=False,
        context=2048,
    )  # fmt: skip
