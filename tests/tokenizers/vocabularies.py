"""Vocabularies of eight families: small ones of our own, and real ones where they are at hand.

The small ones have the kinds, split rules and control tokens of the families. Their tokens were learnt by scripts/references/vocabularies.py from this repository's pages and from texts of many
scripts, and are kept in tests/golden/tokenizers/small/tokens.npz: one set for each of three kinds.
"""

import functools
from pathlib import Path

import numpy as np
import pytest
from shared_files import SHARED

from akunu_py.gguf import GGUFFile
from akunu_py.tokenizers import from_gguf

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "tokenizers" / "small"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
_HTML = ("</s>", ["< /", "</ s", "</s >"])


def _bytes(pre, control, *, user_defined=(), missing="", html=False, **ids):
    """A byte-level vocabulary without the letters of `missing`; `html` merges to "</s>", which is text there."""
    tokens = [token for token in learnt("bytes_tokens") if set(missing).isdisjoint(token)]
    merges = [merge for merge in learnt("bytes_merges") if set(missing).isdisjoint(merge)]
    if html:
        steps = [merge.replace(" ", "") for merge in _HTML[1]]
        tokens = tokens + [step for step in steps if step not in tokens]
        merges = merges + [merge for merge in _HTML[1] if merge not in merges]
    types = [NORMAL] * len(tokens)
    return _metadata("gpt2", tokens, types, control, user_defined, ids) | {
        "tokenizer.ggml.pre": pre, "tokenizer.ggml.merges": merges,
    }  # fmt: skip


def _pieces(control, *, user_defined=(), **ids):
    """SentencePiece's kind: tokens merge by score."""
    tokens, types = learnt("pieces_tokens"), learnt("pieces_types")
    metadata = _metadata("llama", tokens, types, control, user_defined, ids)
    added = len(metadata["tokenizer.ggml.tokens"]) - len(tokens)
    scores = np.array([*learnt("pieces_scores"), *[0.0] * added], np.float32)
    return metadata | {"tokenizer.ggml.scores": scores, "tokenizer.ggml.unknown_token_id": 0}


def _characters(control, *, user_defined=(), **ids):
    """Gemma 4's kind: characters merge, and what is no token is written in bytes."""
    tokens = [*(f"<0x{byte:02X}>" for byte in range(256)), *learnt("characters_tokens")]
    types = [BYTE] * 256 + [NORMAL] * (len(tokens) - 256)
    return _metadata("gemma4", tokens, types, control, user_defined, ids) | {
        "tokenizer.ggml.merges": learnt("characters_merges")
    }


def _metadata(model, tokens, types, control, user_defined, ids):
    """What the kinds share; `ids` are the texts of special tokens, or plain values, by the rest of their keys."""
    tokens = [*tokens, *control, *user_defined]
    types = [*types, *[CONTROL] * len(control), *[USER_DEFINED] * len(user_defined)]
    metadata = {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
    }
    for key, value in ids.items():
        of_text = isinstance(value, str)
        metadata[f"tokenizer.ggml.{key}"] = tokens.index(value) if of_text else value
    return metadata


_MAKERS = {
    "llama-spm": lambda: _pieces((), bos_token_id="<s>", eos_token_id="</s>", add_bos_token=True),
    "phi-3": lambda: _pieces(
        ("<|endoftext|>", "<|assistant|>", "<|placeholder1|>", "<|system|>", "<|end|>", "<|user|>"),
        bos_token_id="<s>", eos_token_id="<|endoftext|>", add_bos_token=True,
    ) | {"general.name": "Phi3"},
    "llama-bpe": lambda: _bytes(
        "llama-bpe",
        ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        bos_token_id="<|begin_of_text|>", eos_token_id="<|end_of_text|>",
    ),
    "qwen2": lambda: _bytes(
        "qwen2", ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), user_defined=("<think>", "</think>"),
        html=True, bos_token_id="<|endoftext|>", eos_token_id="<|endoftext|>",
    ),
    "deepseek-coder": lambda: _bytes(
        "deepseek-coder", ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
        # Letters of bytes that UTF-8 does not have, and tokens in their place.
        missing="õÀøö",
        user_defined=("õ", "À", "ø", "ö", "<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>", "<|EOT|>"),
        bos_token_id="<｜begin▁of▁sentence｜>", eos_token_id="<｜end▁of▁sentence｜>", add_bos_token=True,
    ),
    "gpt-2": lambda: _bytes(
        "gpt-2", ("<|endoftext|>",), bos_token_id="<|endoftext|>", eos_token_id="<|endoftext|>"
    ),
    "starcoder": lambda: _bytes(
        "starcoder", ("<|endoftext|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>"),
        # Bytes that begin planes 4 and above.
        missing="\xf1\xf2\xf3\xf4", bos_token_id="<|endoftext|>", eos_token_id="<|endoftext|>",
    ),
    "gemma-4": lambda: _characters(
        ("<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>"),
        user_defined=("<|tool_call>", "<|tool_response>", "<|channel>", "<channel|>"),
        bos_token_id="<bos>", eos_token_id="<eos>", unknown_token_id="<unk>", padding_token_id="<pad>",
        add_bos_token=True, add_space_prefix=False,
    ),
}  # fmt: skip
NAMES = tuple(_MAKERS)
VOCABS = SHARED / "vocabs"


@functools.cache
def learnt(name):
    """One array of tokens.npz, as a list."""
    with np.load(GOLDEN / "tokens.npz") as file:
        return file[name].tolist()


@functools.cache
def small_metadata(name):
    """Metadata of a vocabulary, as a file's."""
    return {"general.architecture": "llama", "general.name": name} | _MAKERS[name]()


@functools.cache
def small(name):
    """Tokenizer and metadata of a vocabulary."""
    return from_gguf(small_metadata(name)), small_metadata(name)


@functools.cache
def real(name):
    """The same of a real vocabulary; skips the test where it is absent."""
    path = VOCABS / f"ggml-vocab-{name}.gguf"
    if not path.exists():
        pytest.skip(f"{path} is absent: real vocabularies are not shipped")
    with GGUFFile.open(path) as file:
        return from_gguf(file.metadata), file.metadata


EACH = [
    # The real one of Gemma 4 has 262,144 tokens, which take two seconds to read.
    pytest.param(
        make,
        name,
        id=f"{make.__name__} {name}",
        marks=pytest.mark.slow if make is real and name == "gemma-4" else (),
    )
    for make in (small, real)
    for name in NAMES
]
"""Parameters: what makes a vocabulary, and its name."""
