"""Thoughts before a constrained answer: which a vocabulary knows, and that they stay free."""

import numpy as np
import pytest
from vocabularies import small_metadata

from akunu_py.constraints import MatcherVocabulary, make_matcher
from akunu_py.engine.drafter_factory import Matchers
from akunu_py.engine.reasoning import opening_of
from akunu_py.tokenizers import from_gguf
from akunu_py.tokenizers.vocabulary import TokenType
from akunu_py.values.constraint import Constraint
from akunu_py.values.types import GenerationConfig

HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>")
ANSWER = Constraint.choices(["yes", "no"])


def tokenizer_with(added, kind=TokenType.CONTROL):
    """The vocabulary of GPT-2, small, with further tokens."""
    metadata = dict(small_metadata("gpt-2"))
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], *added]
    metadata["tokenizer.ggml.token_type"] = [
        *metadata["tokenizer.ggml.token_type"],
        *[int(kind)] * len(added),
    ]

    metadata["tokenizer.ggml.token_type"] = np.array(
        metadata["tokenizer.ggml.token_type"], np.int32
    )
    return from_gguf(metadata)


def fits(tokenizer, prompt_end, text):
    vocabulary = MatcherVocabulary(tokenizer, tokenizer.vocabulary_size)
    matcher = make_matcher(ANSWER, vocabulary, opening_of(prompt_end, tokenizer))
    tokens = [*tokenizer.encode(text, parse_special=True), min(tokenizer.end_ids)]
    return matcher.validate(tokens) == len(tokens)


@pytest.mark.parametrize("kind", [TokenType.CONTROL, TokenType.USER_DEFINED])
def test_thoughts_come_before_the_answer_once(kind):
    tokenizer = tokenizer_with(("<think>", "</think>"), kind)
    assert fits(tokenizer, "assistant\n", "yes")
    assert fits(tokenizer, "assistant\n", "<think>\nno {or yes\n</think>\n\nyes")
    assert not fits(tokenizer, "assistant\n", "<think>hm</think>maybe")
    assert not fits(tokenizer, "assistant\n", "hm <think>hm</think>yes")
    assert not fits(tokenizer, "assistant\n", "<think>yes")
    assert fits(tokenizer, "assistant\n<think>\n", "no {or yes\n</think>\n\nyes")
    assert not fits(tokenizer, "assistant\n<think>\n", "yes")


def test_a_text_that_goes_on_has_no_thoughts_before_the_answer():
    tokenizer = tokenizer_with(("<think>", "</think>"))
    matchers = Matchers(tokenizer, tokenizer.vocabulary_size)
    config = GenerationConfig(constraint=ANSWER)
    prompt = tokenizer.encode("assistant\n<think>\n", parse_special=True)
    thought = tokenizer.encode("hm</think>yes", parse_special=True)
    answering = matchers.make(config, prompt, continues=False).compile()
    assert answering.validate(thought) == len(thought)
    going_on = matchers.make(config, prompt, continues=True).compile()
    assert going_on.validate(thought) == 0
    assert going_on.validate(tokenizer.encode("yes")) > 0
    assert matchers.make(GenerationConfig(), prompt, continues=False) is None


def test_messages_of_gpt_oss():
    tokenizer = tokenizer_with(HARMONY)
    think = "<|channel|>analysis<|message|>hm, {yes}<|end|>"
    final = "<|channel|>final<|message|>"
    assert fits(tokenizer, "<|start|>assistant", f"{think}<|start|>assistant{final}yes")
    assert fits(tokenizer, "<|start|>assistant", f"{final}yes")
    assert fits(tokenizer, f"<|start|>assistant{final}", "yes")
    assert not fits(tokenizer, "<|start|>assistant", f"{think}<|start|>assistant{final}maybe")
    assert not fits(tokenizer, "<|start|>assistant", "yes")
