"""Control tokens that open and close reasoning, which are part of a reply's text.

Other control tokens are not. Without these nobody could tell a model's thoughts from its answer:
gpt-oss would begin with "analysis" and go on with "assistantfinal". Where a vocabulary has the same
markers as text or user-defined tokens they are in the text anyway.
"""

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from akunu_py.protocols import Tokenizer

_FAMILIES = (
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<|think:start|>", "<|think:end|>"),
    ("<|channel>", "<channel|>"),
    ("<|start|>", "<|channel|>", "<|message|>", "<|end|>"),
    ("<|begin|>", "<|think|>", "<|content|>", "<|end|>"),
)
"""Of DeepSeek and Qwen, Seed-OSS, Magistral, Cohere's Command A, Apertus, LongCat and others, Gemma
4, gpt-oss (OpenAI's "Harmony response format"), Solar Open; a vocabulary with all of one has it."""

_known: "WeakKeyDictionary[Tokenizer, Mapping[int, str]]" = WeakKeyDictionary()


def reasoning_marks(tokenizer: Tokenizer) -> Mapping[int, str]:
    """Return the ids of a vocabulary's control tokens around reasoning, and their texts."""
    marks = _known.get(tokenizer)
    if marks is None:
        begin = len(tokenizer.encode(""))
        marks = {}
        for family in _FAMILIES:
            ids = [tokenizer.encode(text, parse_special=True)[begin:] for text in family]
            if all(len(of_text) == 1 for of_text in ids):
                marks |= {
                    of_text[0]: text
                    for of_text, text in zip(ids, family, strict=True)
                    if tokenizer.decode(of_text, with_control=True) == text
                    and not tokenizer.decode(of_text)
                }
        _known[tokenizer] = marks
    return marks
