"""The shared vocabularies as tokenizers."""

import pytest
from shared_files import SHARED

from akunu_py.gguf import GGUFFile
from akunu_py.tokenizers import from_gguf

NAMES = (
    "deepseek-coder",
    "gemma-4",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "phi-3",
    "qwen2",
    "starcoder",
)


def shared_tokenizer(name):
    """The tokenizer; skips the test where the vocabulary is absent."""
    path = SHARED / "vocabs" / f"ggml-vocab-{name}.gguf"
    if not path.exists():
        pytest.skip(f"{path.name} is absent: real vocabularies are not shipped")
    with GGUFFile.open(path) as file:
        return from_gguf(file.metadata)
