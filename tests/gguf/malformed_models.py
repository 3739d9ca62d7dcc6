"""Files that are sound GGUF and no sound model: what loading says about each.

Each case is a small llama of one layer with a few changes. `PAIRS` and `TENSORS` hold the sound
model: key -> (type, bytes), and name -> (shape, type); a change of None leaves out.
"""

import struct
from dataclasses import dataclass, field
from typing import Any

from gguf_bytes import (
    BOOL,
    F32,
    I32,
    STRING,
    U8,
    U32,
    build,
    f32,
    i32,
    items,
    pair,
    tensor,
    text,
    u32,
    u64,
)
from gguf_files import CHAT_TEMPLATE, bpe_vocabulary, spm_vocabulary

Pairs = dict[str, tuple[int, bytes] | None]
Tensors = dict[str, tuple[tuple[int, ...], int] | None]

NAN, INF = float("nan"), float("inf")
_SIZES = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 24: (1, 1)}  # elements, bytes of a block


BPE_TOKENS, BPE_TYPES, MERGES = bpe_vocabulary()
SPM_TOKENS, SPM_TYPES, SCORES = spm_vocabulary()
ROWS = len(BPE_TOKENS)
T, M = "tokenizer.ggml.", "llama."
BPE: Pairs = {
    T + "model": text("gpt2"),
    T + "pre": text("llama-bpe"),
    T + "tokens": items(STRING, BPE_TOKENS),
    T + "token_type": items(I32, BPE_TYPES),
    T + "merges": items(STRING, MERGES),
    T + "bos_token_id": u32(BPE_TOKENS.index("<s>")),
    T + "eos_token_id": u32(BPE_TOKENS.index("</s>")),
    "tokenizer.chat_template": text(CHAT_TEMPLATE),
}
SPM: Pairs = {
    **BPE,
    T + "model": text("llama"),
    T + "pre": None,
    T + "merges": None,
    T + "tokens": items(STRING, SPM_TOKENS),
    T + "token_type": items(I32, SPM_TYPES),
    T + "scores": items(F32, SCORES),
    T + "bos_token_id": u32(1),
    T + "eos_token_id": u32(2),
}
PAIRS: Pairs = {
    "general.architecture": text("llama"),
    M + "block_count": u32(1),
    M + "context_length": u32(64),
    M + "embedding_length": u32(32),
    M + "feed_forward_length": u32(64),
    M + "attention.head_count": u32(2),
    M + "attention.head_count_kv": u32(1),
    M + "attention.layer_norm_rms_epsilon": f32(1e-5),
    M + "rope.freq_base": f32(10000.0),
    **BPE,
}
TENSORS: Tensors = {
    "token_embd.weight": ((32, ROWS), 8),
    "output_norm.weight": ((32,), 0),
    "blk.0.attn_norm.weight": ((32,), 0),
    "blk.0.attn_q.weight": ((32, 32), 8),
    "blk.0.attn_k.weight": ((32, 16), 0),
    "blk.0.attn_v.weight": ((32, 16), 1),
    "blk.0.attn_output.weight": ((32, 32), 2),
    "blk.0.ffn_norm.weight": ((32,), 0),
    "blk.0.ffn_gate.weight": ((32, 64), 0),
    "blk.0.ffn_up.weight": ((32, 64), 0),
    "blk.0.ffn_down.weight": ((64, 32), 0),
}


def model(pairs: Pairs | None = None, tensors: Tensors | None = None, fill: bytes = b"\1") -> bytes:
    """Return the sound model with changes; `fill` is repeated for all weights."""
    merged = {**PAIRS, **(pairs or {})}
    keys = [pair(key, *value) for key, value in merged.items() if value is not None]
    table, data = [], b""
    for name, entry in {**TENSORS, **(tensors or {})}.items():
        if entry is None:
            continue
        shape, kind = entry
        elements, size = _SIZES[kind]
        nbytes = size
        for length in shape:
            nbytes *= length
        nbytes //= elements
        table.append(tensor(name, shape, kind, len(data)))
        data += (fill * nbytes)[:nbytes]
        data += bytes(-len(data) % 32)
    return build(keys, table, data)


def spm(pairs: Pairs | None = None) -> bytes:
    """Return the sound model with a SentencePiece vocabulary, with changes."""
    shape = ((32, len(SPM_TOKENS)), 8)
    return model({**SPM, **(pairs or {})}, {"token_embd.weight": shape})


def with_item(values: list[Any], place: int, value: Any) -> list[Any]:
    return [*values[:place], value, *values[place + 1 :]]


@dataclass(frozen=True)
class Malformed:
    """A file, part of the message, and whether a chat must be begun before it shows."""

    raw: bytes = field(repr=False)
    words: str
    chat: bool = False


def key(name: str, value: tuple[int, bytes] | None, words: str) -> Malformed:
    return Malformed(model({name: value}), words)


def spm_key(name: str, value: tuple[int, bytes] | None, words: str) -> Malformed:
    return Malformed(spm({name: value}), words)


def spm_byte(token: str, words: str) -> Malformed:
    """One token that stands for a byte is another."""
    return spm_key(T + "tokens", items(STRING, with_item(SPM_TOKENS, 7, token)), words)


def weights(name: str, entry: tuple[tuple[int, ...], int] | None, words: str) -> Malformed:
    return Malformed(model(tensors={name: entry}), words)


def template(source: str | bytes) -> Malformed:
    return Malformed(model({"tokenizer.chat_template": text(source)}), "template", chat=True)


_ADD_ROW: Tensors = {"token_embd.weight": ((32, ROWS + 1), 8)}
_DROP_ROW: Tensors = {"token_embd.weight": ((32, ROWS - 1), 8)}

MALFORMED_MODELS: dict[str, Malformed] = {
    # Architecture and sizes.
    "no architecture": key("general.architecture", None, "general.architecture"),
    "architecture is a number": key("general.architecture", u32(1), "general.architecture"),
    "architecture is a path": key("general.architecture", text("../../etc"), "architecture"),
    "block_count 10**9": key(M + "block_count", u32(10**9), "block_count"),
    "block_count 2**63": key(M + "block_count", u64(2**63), "block_count"),
    "block_count 0": key(M + "block_count", u32(0), "block_count"),
    "block_count -1": key(M + "block_count", i32(-1), "block_count"),
    "block_count 2": key(M + "block_count", u32(2), "layers"),
    "block_count is text": key(M + "block_count", text("1"), "block_count"),
    "block_count is missing": key(M + "block_count", None, "block_count"),
    "embedding_length 10**9": key(M + "embedding_length", u32(10**9), "embedding_length|token_embd"),
    "embedding_length 64": key(M + "embedding_length", u32(64), "token_embd"),
    "head_count 0": key(M + "attention.head_count", u32(0), "head_count"),
    "head_count 3": Malformed(model({M + "attention.head_count": u32(3), M + "attention.head_count_kv": u32(1)}), "heads|head_count"),
    "head_count 2**32 - 1": key(M + "attention.head_count", u32(2**32 - 1), "head_count"),
    "head_count_kv 0": key(M + "attention.head_count_kv", u32(0), "head_count_kv"),
    "head_count_kv 3": key(M + "attention.head_count_kv", u32(3), "head_count_kv"),
    "head_count_kv is an empty array": key(M + "attention.head_count_kv", items(U32, []), "head_count_kv"),
    "key_length 15": key(M + "attention.key_length", u32(15), "key_length"),
    "key_length 2**31": key(M + "attention.key_length", u32(2**31), "key_length"),
    "feed_forward_length 10**9": key(M + "feed_forward_length", u32(10**9), "feed_forward_length|ffn_"),
    "context_length 0": key(M + "context_length", u32(0), "context_length"),
    "context_length is missing": key(M + "context_length", None, "context_length"),
    "epsilon is not a number": key(M + "attention.layer_norm_rms_epsilon", f32(NAN), "epsilon"),
    "epsilon 0": key(M + "attention.layer_norm_rms_epsilon", f32(0), "epsilon"),
    "epsilon is infinite": key(M + "attention.layer_norm_rms_epsilon", f32(INF), "epsilon"),
    "rope base 0": key(M + "rope.freq_base", f32(0), "freq_base"),
    "rope base is infinite": key(M + "rope.freq_base", f32(INF), "freq_base"),
    "rope base is true": key(M + "rope.freq_base", (BOOL, b"\1"), "freq_base"),
    "scaling of an unknown kind": key(M + "rope.scaling.type", text("magic"), "magic"),
    # Tensors.
    "no embedding": weights("token_embd.weight", None, "token_embd"),
    "a matrix is missing": weights("blk.0.attn_q.weight", None, "attn_q"),
    "an unknown tensor": weights("blk.0.magic.weight", ((32,), 0), "magic"),
    "a name with a path": weights("../../x", ((32,), 0), r"\.\./"),
    "a name with a newline": weights("x\n", ((32,), 0), r"'x\\n'"),
    "a matrix is transposed": weights("blk.0.ffn_up.weight", ((64, 32), 0), "ffn_up"),
    "a matrix is a vector": weights("blk.0.attn_q.weight", ((1024,), 8), "attn_q"),
    "a matrix has three dimensions": weights("blk.0.attn_q.weight", ((32, 16, 2), 8), "attn_q"),
    "a matrix of integers": weights("blk.0.attn_q.weight", ((32, 32), 24), "attn_q"),
    "a layer too many": weights("blk.1.attn_q.weight", ((32, 32), 8), "layer"),
    "factors of another size": weights("rope_freqs.weight", ((7,), 0), "rope_freqs"),
    # The vocabulary.
    "a token less than rows": Malformed(model(tensors=_ADD_ROW), f"{ROWS} tokens|{ROWS + 1}"),
    "a token more than rows": Malformed(model(tensors=_DROP_ROW), f"{ROWS} tokens|{ROWS - 1}"),
    "no tokens": key(T + "tokens", None, "tokens"),
    "tokens are numbers": key(T + "tokens", items(U32, [1] * ROWS), "tokens"),
    "tokens are one text": key(T + "tokens", text("a b c"), "tokens"),
    "tokens are empty": key(T + "tokens", items(STRING, []), "token"),
    "types are too few": key(T + "token_type", items(I32, BPE_TYPES[:-1]), "token_type"),
    "types are not whole numbers": key(T + "token_type", items(F32, BPE_TYPES), "token_type"),
    "an unknown type": key(T + "token_type", items(I32, with_item(BPE_TYPES, 5, 99)), "99"),
    "a negative type": key(T + "token_type", items(I32, with_item(BPE_TYPES, 5, -1)), "-1"),
    "eos beyond the vocabulary": key(T + "eos_token_id", u32(ROWS), "eos_token_id"),
    "eos 2**32 - 1": key(T + "eos_token_id", u32(2**32 - 1), "eos_token_id"),
    "bos beyond the vocabulary": key(T + "bos_token_id", u32(ROWS), "bos_token_id"),
    "bos -1": key(T + "bos_token_id", i32(-1), "bos_token_id"),
    "eos is text": key(T + "eos_token_id", text("</s>"), "eos_token_id"),
    "eos is true": key(T + "eos_token_id", (BOOL, b"\1"), "eos_token_id"),
    "eot is a fraction": key(T + "eot_token_id", f32(1.5), "eot_token_id"),
    "add_bos_token is a number": key(T + "add_bos_token", u32(1), "add_bos_token"),
    "an unknown tokenizer": key(T + "model", text("magic"), "magic"),
    "the tokenizer is a number": key(T + "model", u32(1), "tokenizer.ggml.model"),
    "no tokenizer": key(T + "model", None, "tokenizer.ggml.model"),
    "unknown split rules": key(T + "pre", text("magic"), "magic"),
    "split rules are a number": key(T + "pre", u32(1), "pre"),
    "no merges": key(T + "merges", None, "merges"),
    "merges are numbers": key(T + "merges", items(U32, [1, 2]), "merges"),
    "a merge without a space": key(T + "merges", items(STRING, [*MERGES, "th"]), "merges"),
    "a merge with two spaces": key(T + "merges", items(STRING, [*MERGES, "t h e"]), "merges"),
    "an empty merge": key(T + "merges", items(STRING, [*MERGES, ""]), "merges"),
    "a merge of no tokens": key(T + "merges", items(STRING, [*MERGES, "zz qq"]), "merges"),
    # The vocabulary of SentencePiece.
    "scores are small numbers": spm_key(T + "scores", items(U8, [0] * len(SCORES)), "scores"),
    "scores are missing": spm_key(T + "scores", None, "scores"),
    "scores are too few": spm_key(T + "scores", items(F32, SCORES[:-1]), "scores"),
    "a score that is no number": spm_key(T + "scores", items(F32, with_item(SCORES, 9, NAN)), "scores"),
    "types are missing": spm_key(T + "token_type", None, "token_type"),
    "byte token <0x-1>": spm_byte("<0x-1>", "0x-1"),
    "byte token <0xZZ>": spm_byte("<0xZZ>", "0xZZ"),
    "byte token <0x0>": spm_byte("<0x0>", "0x0"),
    "byte token twice": spm_byte("<0x01>", "byte"),
    # Weights.
    "scales are not finite": Malformed(model(fill=struct.pack("<H", 0x7C00)), "not finite"),
    # Templates.
    "template is a number": key("tokenizer.chat_template", u32(1), "template"),
    "template never ends": template("{% for x in y %}"),
    "template of a megabyte": template("x" * 2**20),
    "template nests too deep": template("{{" + "[" * 5000 + "]" * 5000 + "}}"),
    "template loops for hours": template("{% for a in range(10**5) %}{% for b in range(10**5) %}{% endfor %}{% endfor %}"),
    "template doubles a text": template("{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}"),
    "template repeats a text": template("{{ 'x' * 10**10 }}"),
    "template makes a huge number": template("{{ 9 ** (9 ** 9) }}"),
    "template pads a text": template("{{ '%1000000000d' % 1 }}"),
    "template reaches for Python": template("{{ ''.__class__.__mro__[1].__subclasses__() }}"),
    "template reaches for globals": template("{{ cycler.__init__.__globals__.os.popen('id').read() }}"),
    "template includes a file": template("{% include '/etc/passwd' %}"),
}  # fmt: skip
