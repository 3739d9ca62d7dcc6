"""Random texts that a grammar allows, over a vocabulary of bytes."""

import random

import llguidance
import numpy as np
from llguidance import LLMatcher

_BYTES = llguidance.LLTokenizer("byte")


def compile_error(lark: str) -> str:
    """Return why a grammar cannot be compiled, or ""."""
    return LLMatcher(_BYTES, lark, log_level=0).get_error()


def allows(lark: str, text: str) -> bool:
    matcher = LLMatcher(_BYTES, lark, log_level=0)
    ids = list(text.encode())
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def walk(lark: str, seed: int, longest: int = 700) -> str | None:
    """Return a text that the grammar allows; None if it did not end."""
    drawn = random.Random(seed)
    matcher = LLMatcher(_BYTES, lark, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    text = bytearray()
    while len(text) < longest:
        if matcher.is_stopped():
            return text.decode()
        words = np.frombuffer(matcher.compute_bitmask(), np.uint32)
        allowed = [i for i in range(256) if words[i // 32] >> (i % 32) & 1]
        if matcher.is_accepting() and (not allowed or drawn.random() < 0.3):
            return text.decode()
        liked = [i for i in allowed if i in b'"<>/}]{[\n \\,:']
        plain = [i for i in allowed if 32 <= i < 127]
        byte = drawn.choice(liked if liked and drawn.random() < 0.5 else plain or allowed)
        matcher.consume_token(byte)
        text.append(byte)
    return None
