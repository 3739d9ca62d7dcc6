"""The tokenizer of a GGUF file as Hugging Face's `tokenizer.json`, for mlx-lm.

akunu itself reads the metadata. Two kinds can be written so: byte-level BPE, and SentencePiece's
BPE as merges with byte fallback.
"""

import json
from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from akunu_py.tokenizers.gguf_tokenizer import from_gguf
from akunu_py.tokenizers.split_rules import split_rule
from akunu_py.tokenizers.vocabulary import (
    TokenType,
    Vocabulary,
    get_flag,
    get_scores,
    get_text,
    get_texts,
    read_vocabulary,
)

_SPACE = "\u2581"


def tokenizer_files(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return file name -> content of tokenizer.json and tokenizer_config.json.

    None for a kind of vocabulary that these files cannot hold. Raises ModelFormatError as
    `from_gguf` does.
    """
    vocabulary = read_vocabulary(metadata)
    kind = get_text(metadata, "tokenizer.ggml.model")
    if len(set(vocabulary.tokens)) < len(vocabulary.tokens):
        return None
    tokenizer: Tokenizer | None = None
    if kind == "llama":
        tokenizer = _sentencepiece(metadata, vocabulary)
    elif kind == "gpt2":
        tokenizer = _byte_level(metadata, vocabulary)
    if tokenizer is None:
        return None
    special = [text for text, _ in vocabulary.texts(TokenType.CONTROL, TokenType.UNKNOWN)]
    defined = [text for text, _ in vocabulary.texts(TokenType.USER_DEFINED)]
    ids = {text: id_ for id_, text in enumerate(vocabulary.tokens)}
    # In the order of their ids: tokens the vocabulary has keep theirs.
    for text in sorted((*special, *defined), key=lambda text: ids[text]):
        token = AddedToken(text, normalized=False, special=text in special)
        (tokenizer.add_special_tokens if text in special else tokenizer.add_tokens)([token])
    own = from_gguf(metadata)
    begin = own.encode("")
    if begin:
        text = vocabulary.tokens[begin[0]]
        tokenizer.post_processor = TemplateProcessing(
            single=f"{text} $A", pair=f"{text} $A $B", special_tokens=[(text, begin[0])]
        )
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": bool(begin),
    }
    names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    for name, key in names.items():
        if name in vocabulary.special_ids:
            config[key] = vocabulary.tokens[vocabulary.special_ids[name]]
    if (template := get_text(metadata, "tokenizer.chat_template")) is not None:
        config["chat_template"] = template
    return {
        "tokenizer.json": json.loads(tokenizer.to_str()),
        "tokenizer_config.json": config,
    }


def _byte_level(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> Tokenizer | None:
    rule = split_rule(get_text(metadata, "tokenizer.ggml.pre"))
    if rule.raw or rule.whole_newlines:
        return None
    ids = {text: id_ for id_, text in enumerate(vocabulary.tokens)}
    merges = [tuple(line.split(" ")) for line in get_texts(metadata, "merges")]
    known = [
        (parts[0], parts[1])
        for parts in merges
        if len(parts) == 2 and parts[0] in ids and parts[1] in ids and parts[0] + parts[1] in ids
    ]
    tokenizer = Tokenizer(BPE(vocab=ids, merges=known, ignore_merges=rule.ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> Tokenizer:
    """Return merges in the order of their results' scores: SentencePiece takes the best first."""
    scores = get_scores(metadata, len(vocabulary.tokens))
    ids = {text: id_ for id_, text in enumerate(vocabulary.tokens)}
    normal = {
        text
        for text, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
        if kind is TokenType.NORMAL
    }
    merges = [
        (-scores[ids[text]], ids[text[:cut]], text[:cut], text[cut:])
        for text in normal
        for cut in range(1, len(text))
        if text[:cut] in normal and text[cut:] in normal
    ]
    merges.sort(key=lambda merge: (merge[0], merge[1]))
    unknown = vocabulary.special_ids.get("unknown")
    tokenizer = Tokenizer(
        BPE(
            vocab=ids,
            merges=[(left, right) for _, _, left, right in merges],
            byte_fallback=True,
            fuse_unk=True,
            unk_token=None if unknown is None else vocabulary.tokens[unknown],
        )
    )
    prefix = get_flag(metadata, "add_space_prefix", default=True)
    replace = normalizers.Replace(" ", _SPACE)
    steps = [normalizers.Prepend(_SPACE), replace] if prefix else [replace]
    tokenizer.normalizer = normalizers.Sequence(steps)
    ending = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *ending]
    )
    return tokenizer
