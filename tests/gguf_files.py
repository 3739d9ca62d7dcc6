"""Writes small, valid GGUF files of the llama family for tests: random weights, real structure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import gguf
import numpy as np

from akunu_py.gguf import BLOCK_TYPES

_TYPES = {
    name: gguf.GGMLQuantizationType[name]
    for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
}
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
CONTROL_TOKENS = ("<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
_WORDS = ("the", "and", "token", "draft", "model", "ing", "hello", "world", "def", "return")


def finish(writer: gguf.GGUFWriter) -> None:
    """Write what a writer was given, and close its file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def raw_type(kind: str) -> int:
    """Return the number of a type, for `add_tensor(raw_dtype=)`, of types too that the gguf package lacks."""
    block = next(block for block in BLOCK_TYPES.values() if block.name == kind)
    gguf.GGML_QUANT_SIZES.setdefault(block.id, (block.block_elements, block.block_bytes))
    return block.id


def byte_alphabet() -> list[str]:
    """The character that GPT-2's byte-level BPE writes for each byte, by byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [
        chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)
    ]


def bpe_vocabulary() -> tuple[list[str], list[int], list[str]]:
    """Tokens, token types and merges: all bytes, a few words with and without a space before."""
    tokens = byte_alphabet()
    merges: list[str] = []
    for word in [*_WORDS, *("Ġ" + word for word in _WORDS)]:
        made = word[0]
        for letter in word[1:]:
            if made + letter not in tokens:
                tokens.append(made + letter)
                merges.append(f"{made} {letter}")
            made += letter
    types = [int(gguf.TokenType.NORMAL)] * len(tokens)
    tokens += CONTROL_TOKENS
    types += [int(gguf.TokenType.CONTROL)] * len(CONTROL_TOKENS)
    return tokens, types, merges


def spm_vocabulary() -> tuple[list[str], list[int], list[float]]:
    """Tokens, token types and scores: control, all bytes, characters, then words by rank."""
    tokens = ["<unk>", *CONTROL_TOKENS, *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [int(gguf.TokenType.UNKNOWN)]
    types += [int(gguf.TokenType.CONTROL)] * len(CONTROL_TOKENS)
    types += [int(gguf.TokenType.BYTE)] * 256
    pieces: list[str] = []
    for word in [*_WORDS, *("▁" + word for word in _WORDS)]:
        for end in range(2, len(word) + 1):
            if word[:end] not in pieces:
                pieces.append(word[:end])
    letters = ["▁", *(chr(code) for code in range(0x21, 0x7F))]
    scores = [0.0] * len(tokens) + [-float(rank + 1) for rank in range(len(pieces) + len(letters))]
    tokens += pieces + letters
    types += [int(gguf.TokenType.NORMAL)] * (len(pieces) + len(letters))
    return tokens, types, scores


def add_vocabulary(
    writer: gguf.GGUFWriter, vocabulary: Literal["bpe", "spm"], *, chat_template: str | None
) -> int:
    """Write the tokenizer's metadata; return the number of tokens."""
    if vocabulary == "bpe":
        tokens, types, merges = bpe_vocabulary()
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("llama-bpe")
        writer.add_token_merges(merges)
    else:
        tokens, types, scores = spm_vocabulary()
        writer.add_tokenizer_model("llama")
        writer.add_token_scores(scores)
        writer.add_unk_token_id(0)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_bos_token_id(tokens.index("<s>"))
    writer.add_eos_token_id(tokens.index("</s>"))
    writer.add_add_bos_token(True)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    return len(tokens)


def write_tiny_llama(
    path: Path,
    *,
    quantization: str = "F32",
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    feed_forward: int = 96,
    vocabulary: Literal["bpe", "spm"] = "bpe",
    context: int = 256,
    tied: bool = True,
    seed: int = 0,
    rope_base: float = 10000.0,
    rope_frequencies: bool = False,
    chat_template: str | None = CHAT_TEMPLATE,
    sampling: Mapping[str, float] | None = None,
) -> Path:
    """Write a llama model with random weights from `seed` and return its path.

    `quantization` is the type of the matrices (F32, F16, BF16, Q8_0, Q4_0, Q4_1); norms are F32,
    as converters write them; `sampling` is what the makers recommend. Width and feed_forward must be multiples of 32 for the quantized.
    """
    writer = gguf.GGUFWriter(str(path), "llama")
    rows = add_vocabulary(writer, vocabulary, chat_template=chat_template)
    head_dim = width // heads
    writer.add_name("tiny llama for tests")
    writer.add_block_count(layers)
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(rope_base)
    writer.add_rope_dimension_count(head_dim)
    writer.add_vocab_size(rows)
    for name, value in (sampling or {}).items():
        getattr(writer, f"add_sampling_{name}")(value)

    random = np.random.default_rng(seed)
    kind = _TYPES[quantization]

    def matrix(name: str, out: int, into: int, scale: float) -> None:
        weights = random.normal(0, scale, (out, into)).astype(np.float32)
        writer.add_tensor(name, gguf.quantize(weights, kind), raw_dtype=kind)

    def norm(name: str) -> None:
        writer.add_tensor(name, random.normal(1, 0.1, width).astype(np.float32))

    matrix("token_embd.weight", rows, width, 1.0)
    norm("output_norm.weight")
    if not tied:
        matrix("output.weight", rows, width, width**-0.5)
    if rope_frequencies:
        divisors = np.linspace(1, 8, head_dim // 2, dtype=np.float32)
        writer.add_tensor("rope_freqs.weight", divisors)
    for layer in range(layers):
        block = f"blk.{layer}."
        norm(block + "attn_norm.weight")
        norm(block + "ffn_norm.weight")
        scale = width**-0.5
        matrix(block + "attn_q.weight", width, width, scale)
        matrix(block + "attn_k.weight", kv_heads * head_dim, width, scale)
        matrix(block + "attn_v.weight", kv_heads * head_dim, width, scale)
        matrix(block + "attn_output.weight", width, width, scale)
        matrix(block + "ffn_gate.weight", feed_forward, width, scale)
        matrix(block + "ffn_up.weight", feed_forward, width, scale)
        matrix(block + "ffn_down.weight", width, feed_forward, feed_forward**-0.5)
    finish(writer)
    return path


ALPHA, RANK = 12.0, 3


def drawn(shape: tuple[int, ...], rank: int = RANK, seed: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Factors of a matrix [..., out, in]: up [..., out, r] and down [..., r, in]."""
    rng = np.random.default_rng([seed, *shape])
    *lead, out, columns = shape
    up = rng.normal(0, 0.5, (*lead, out, rank))
    down = rng.normal(0, columns**-0.5, (*lead, rank, columns))
    return up.astype(np.float32), down.astype(np.float32)


def write_adapter(
    path: Path,
    architecture: str,
    factors: dict[str, tuple[np.ndarray, np.ndarray]],
    alpha: float = ALPHA,
    **metadata: str,
) -> Path:
    """Write a LoRA adapter as llama.cpp's converter does; `factors` are up and down by tensor."""
    writer = gguf.GGUFWriter(str(path), architecture)
    for key, value in {"general.type": "adapter", "adapter.type": "lora", **metadata}.items():
        writer.add_string(key, value)
    writer.add_float32("adapter.lora.alpha", alpha)
    for name, (up, down) in factors.items():
        first = down.T if name.endswith("token_embd.weight") else down
        writer.add_tensor(f"{name}.lora_a", np.ascontiguousarray(first))
        writer.add_tensor(f"{name}.lora_b", up)
    finish(writer)
    return path


def split_file(path: Path, count: int) -> list[Path]:
    """Write a whole file in parts beside it, the first without tensors."""
    reader = gguf.GGUFReader(path)
    tensors = [reader.tensors[start :: count - 1] for start in range(count - 1)]
    paths = []
    for index in range(count):
        part_path = path.with_name(f"{path.stem}-{index + 1:05d}-of-{count:05d}.gguf")
        writer = gguf.GGUFWriter(part_path, "llama")
        if index == 0:
            for field in reader.fields.values():
                if not field.name.startswith("GGUF.") and field.name != "general.architecture":
                    kind = field.types[0]
                    sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
                    writer.add_key_value(field.name, field.contents(), kind, sub)
        writer.add_uint16("split.no", index)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for item in tensors[index - 1] if index else ():
            writer.add_tensor(item.name, item.data, raw_dtype=item.tensor_type)
        finish(writer)
        paths.append(part_path)
    return paths
