"""The tokenizer of a GGUF file as Hugging Face's `tokenizer.json`, for mlx-lm.

akunu itself reads the metadata. Two kinds can be written in this way: byte-level BPE, and
SentencePiece's BPE as merges with byte fallback. docs/tokenizers.md lists what the file cannot
express.
"""

import json
from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from akunu_py.tokenizers.bpe import (
    decode_alphabet,
    missing_letters,
    split_rule,
    split_steps,
    write_alphabet,
)
from akunu_py.tokenizers.gguf_tokenizer import from_gguf, ids_that_strip
from akunu_py.tokenizers.spm import SPACE
from akunu_py.tokenizers.vocabulary import (
    TokenType,
    Vocabulary,
    get_flag,
    get_scores,
    get_text,
    get_texts,
    read_vocabulary,
)

_ADDED = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)


def tokenizer_files(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return file name -> content of tokenizer.json and tokenizer_config.json.

    None for a kind of vocabulary that these files cannot express. Raises ModelFormatError as
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
    added = vocabulary.texts(*_ADDED)
    strips = ids_that_strip(metadata, added)
    # In the order of their ids, which tokens in the vocabulary keep.
    for text, id_ in sorted(added, key=lambda pair: pair[1]):
        special = vocabulary.types[id_] is not TokenType.USER_DEFINED
        token = AddedToken(text, normalized=False, special=special, rstrip=id_ in strips)
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([token])
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
    return {"tokenizer.json": json.loads(tokenizer.to_str()), "tokenizer_config.json": config}


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
    steps = split_steps(rule)
    if missing := missing_letters(ids):
        # Nothing is merged across a byte that has no token.
        steps.append(pre_tokenizers.Split(Regex(f"[{_escape(missing)}]"), "removed"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    # The decoder would read the text of an added token in the byte alphabet.
    added = (text for text, _, kind in vocabulary.uncommon if kind in _ADDED)
    written = [
        decoders.Replace(Regex(rf"\A{_escape(text)}\z"), write_alphabet(text))
        for text in added
        if decode_alphabet(text) != text.encode()
    ]
    byte_level = decoders.ByteLevel()
    # mlx-lm has a fast path only for a plain byte-level decoder.
    tokenizer.decoder = decoders.Sequence([*written, byte_level]) if written else byte_level
    return tokenizer


def _escape(text: str) -> str:
    return "".join(f"\\x{{{ord(character):x}}}" for character in text)


def _sentencepiece(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> Tokenizer:
    """Return a tokenizer with merges ordered by the scores of their results, best first."""
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
    replace = normalizers.Replace(" ", SPACE)
    steps = [normalizers.Prepend(SPACE), replace] if prefix else [replace]
    tokenizer.normalizer = normalizers.Sequence(steps)
    ending = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *ending]
    )
    return tokenizer
