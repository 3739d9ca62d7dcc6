"""Processor time of tokenizers: until they are ready, and on texts that are all alike."""

import time

import numpy as np
import pytest
from fuzz_texts import pair_vocabulary
from test_gguf_tokenizer import tiny

from akunu_py.tokenizers import from_gguf


@pytest.mark.slow
def test_a_large_vocabulary_is_ready_in_time():
    """1.5 seconds for 150,000 tokens; measured at a third of that on two cores that are not busy."""
    tokens, merges = pair_vocabulary()
    pairs = [merge.split() for merge in merges[:100]]
    letters = tokens[33:126]
    longer = [(first + second, letter) for first, second in pairs for letter in letters]
    more = longer + [(a + b, c) for a, b in longer for c in letters[:10]]
    tokens = [*tokens, *("".join(pair) for pair in more)][:150_000]
    merges = [*merges, *(" ".join(pair) for pair in more)][: len(tokens) - 256]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.ones(len(tokens), np.int32),
        "tokenizer.ggml.merges": merges,
    }
    assert len(tokens) == 150_000

    def ready():
        started = time.process_time()
        from_gguf(metadata)
        return time.process_time() - started

    assert any(ready() < 1.5 for _ in range(3))


@pytest.mark.slow
def test_long_runs_take_no_square_of_their_length():
    started = time.process_time()
    for name in ("afmoe", "llama-bpe", "gpt-4o", "kimi-k2", "jais-2", "deepseek-v3"):
        tokenizer = tiny("bpe", pre=name)
        for text in (*(one * 30000 for one in "1 a!\n"), "aA" * 15000):
            tokenizer.encode(text)
    assert time.process_time() - started < 20
