"""What a case is made of: a sound model with a few changes, the same for the same seed and index."""

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from akunu_py.gguf.header import BLOCK_TYPES
from gguf_fuzzing.documents import ARRAY, FORMATS, STRING, Document, Field, Value, map_fields
from gguf_fuzzing.seeds import Seed

_EDGES = (
    0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**16, 2**24,
    2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**59 + 1, 2**60, 2**61, 2**62, 2**63 - 1, 2**63,
    2**64 - 32, 2**64 - 8, 2**64 - 1,
)  # fmt: skip
_FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-45,
    1e-30,
    1e30,
    3.4e38,
    float("inf"),
    -float("inf"),
    float("nan"),
)
_TEXTS = (
    *(
        text.encode()
        for text in (
            "", " ", "\0", "a", "no-space", "a  b", "a b c", "<0x-1>", "<0xZZ>", "<0x00>",
            "<0x1>", "../../etc/passwd", "/dev/zero", "a" * 10_000, "ü" * 500, "\U0010ffff",
            "\ufffd", "\ufdd0", "<s>", "</s>", "<unk>", "\u2581", "\u0120", "<|end|>", "hello",
            "llama", "gpt2", "bert", "default", "qwen2", "none", "linear", "yarn",
            "{{", "{% if true %}", "{{ ''.__class__.__mro__ }}", "{{ 'x' * 10**9 }}",
            "{% for i in range(10**9) %}x{% endfor %}", "{{ messages[0]['content'] }}",
            "(" * 500, "{{" + "[" * 300 + "]" * 300 + "}}",
        )
    ),
    b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80",
)  # fmt: skip
_KEYS = tuple(
    key.encode()
    for key in (
        "general.alignment", "general.architecture", "split.count", "split.no",
        "split.tensors.count", "llama.expert_count", "llama.rope.scaling.type",
        "llama.rope.scaling.factor", "llama.rope.dimension_count", "llama.attention.key_length",
        "llama.attention.value_length", "llama.attention.scale", "llama.rope.scale_linear",
        "llama.attention.sliding_window", "tokenizer.ggml.add_space_prefix",
        "tokenizer.ggml.add_bos_token", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.pre",
        "tokenizer.ggml.scores", "tokenizer.ggml.merges", "tokenizer.ggml.unknown_token_id",
        "tokenizer.chat_template", "general.name", "x",
    )
)  # fmt: skip
_NAMES = (
    b"", b"x", b"../../x", b"output.weight", b"rope_freqs.weight", b"blk.0.attn_q.bias",
    b"blk.1.attn_q.weight", b"blk.00.attn_q.weight", b"blk.99999999999.attn_q.weight",
    b"token_embd.weight", b"n" * 64, b"\xff",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A mutated model."""

    seed: str  # Name of the model it was made of.
    files: dict[str, bytes]
    given: str  # Name of the file to open.


def _edge(draw: random.Random, kind: int, near: bytes = b"") -> bytes:
    """Return a number of a scalar type: an edge value, or one beside what stood there."""
    form = FORMATS[kind]
    size = struct.calcsize(form)
    if form[1] in "fd":
        return struct.pack(form, draw.choice(_FLOATS))
    if len(near) == size and draw.random() < 0.4:
        number = int.from_bytes(near, "little")
        number = draw.choice((number - 1, number + 1, number * 2, number // 2, -number))
    else:
        number = draw.choice(_EDGES)
    return (number % 2 ** (8 * size)).to_bytes(size, "little")


def _text(draw: random.Random) -> bytes:
    return draw.choice(_TEXTS) if draw.random() < 0.8 else draw.randbytes(draw.randrange(40))


def _item(draw: random.Random, kind: int, near: bytes = b"") -> bytes:
    return _text(draw) if kind == STRING else _edge(draw, kind, near)


def _any_value(draw: random.Random) -> Value:
    kind = draw.choice((*FORMATS, STRING))
    if draw.random() < 0.25:
        return Value(ARRAY, tuple(_item(draw, kind) for _ in range(draw.randrange(5))), kind)
    return Value(kind, (_item(draw, kind),))


def _change_array(draw: random.Random, value: Value, kind: int) -> Value:
    items = list(value.items)
    place = draw.randrange(len(items)) if items else 0
    if draw.random() < 0.5:
        # What is special stands at either end of a vocabulary.
        place = draw.choice((place % 8, max(0, len(items) - 1 - place % 8)))
        place = min(place, max(0, len(items) - 1))
    match draw.randrange(9):
        case 0 if items:
            items[place] = _item(draw, kind, items[place])
        case 1:
            items.insert(place, _item(draw, kind))
        case 2 if items:
            del items[place]
        case 3 if items:
            other = draw.randrange(len(items))
            items[place], items[other] = items[other], items[place]
        case 4 if items:
            items[place] = draw.choice(items)
        case 5:
            del items[place:]
        case 6:
            return replace(
                value, length=draw.choice((len(items) - 1, len(items) + 1, draw.choice(_EDGES)))
            )
        case 7:
            return replace(value, element=draw.choice((*FORMATS, STRING, ARRAY, 13)))
        case _:
            other = draw.choice(list(FORMATS))
            items = [_edge(draw, other) for _ in items]
            return Value(ARRAY, tuple(items), other)
    return replace(value, items=tuple(items))


def _change_value(draw: random.Random, value: Value) -> Value:
    chance = draw.random()
    if chance < 0.15:
        return _any_value(draw)
    if value.element is not None:
        return _change_array(draw, value, value.element)
    if chance < 0.25 and value.kind != STRING:
        # The same number in another type.
        number = int.from_bytes(value.items[0], "little")
        kind = draw.choice([kind for kind, form in FORMATS.items() if form[1] not in "fd"])
        size = struct.calcsize(FORMATS[kind])
        return Value(kind, ((number % 2 ** (8 * size)).to_bytes(size, "little"),))
    return Value(value.kind, (_item(draw, value.kind, value.items[0]),))


def _change_pairs(draw: random.Random, document: Document) -> None:
    pairs = document.pairs
    if not pairs:
        return
    place, other = draw.randrange(len(pairs)), draw.randrange(len(pairs))
    key, value = pairs[place]
    match draw.randrange(10):
        case 0:
            pairs[place], pairs[other] = (pairs[other][0], value), (key, pairs[other][1])
        case 1:
            del pairs[place]
        case 2:
            pairs.insert(other, (draw.choice((key, *_KEYS)), value))
        case 3:
            pairs.insert(other, (draw.choice(_KEYS), _any_value(draw)))
        case 4:
            pairs[place] = (draw.choice((_text(draw), draw.choice(_KEYS))), value)
        case _:
            pairs[place] = (key, _change_value(draw, value))


def _change_tensors(draw: random.Random, document: Document) -> None:
    tensors = document.tensors
    if not tensors:
        return
    place, other = draw.randrange(len(tensors)), draw.randrange(len(tensors))
    tensor, second = tensors[place], tensors[other]
    shape = list(tensor.shape)
    axis = draw.randrange(len(shape))
    match draw.randrange(12):
        case 0:
            tensors[place] = replace(tensor, name=second.name)
            tensors[other] = replace(second, name=tensor.name)
        case 1:
            tensors[place] = replace(tensor, kind=draw.choice(list(BLOCK_TYPES)))
        case 2:
            tensors[place] = replace(tensor, kind=draw.choice(_EDGES))
        case 3:
            shape[axis] = draw.choice((*_EDGES, shape[axis] - 1, shape[axis] + 1, shape[axis] * 2))
            tensors[place] = replace(tensor, shape=tuple(shape))
        case 4:
            tensors[place] = replace(tensor, shape=tuple(reversed(shape)))
        case 5:
            shape.insert(axis, draw.choice((1, 1, 2, 2**32)))
            tensors[place] = replace(tensor, shape=tuple(shape))
        case 6:
            tensors[place] = replace(tensor, shape=(shape[0] * shape[-1],))
        case 7:
            tensors[place] = replace(tensor, offset=second.offset)
        case 8:
            near = (tensor.offset + 32, tensor.offset - 32, tensor.offset + 1)
            tensors[place] = replace(tensor, offset=draw.choice((*_EDGES, *near)))
        case 9:
            del tensors[place]
        case 10:
            tensors.insert(other, replace(tensor, name=draw.choice((tensor.name, *_NAMES))))
        case _:
            tensors[place] = replace(tensor, name=draw.choice((*_NAMES, draw.randbytes(5))))


def _change_data(draw: random.Random, document: Document) -> None:
    data = document.data
    if not data:
        return
    start = draw.randrange(len(data))
    size = min(draw.choice((1, 2, 4, 64, 1000, len(data))), len(data) - start)
    filling = draw.choice((b"\xff" * size, bytes(size), b"\x00\x7c" * size, draw.randbytes(size)))
    match draw.randrange(4):
        case 0:
            document.data = data[:start]
        case 1:
            document.data = data[:start] + data[start + size :]
        case _:
            document.data = data[:start] + filling[:size] + data[start + size :]


_DocumentChange = Callable[[random.Random, Document], None]


def _change_bytes(
    draw: random.Random, raw: bytearray, fields: Sequence[Field], end: int, other: bytes
) -> None:
    """Change bytes before `end`: numbers known or guessed, bits, ranges."""
    end = max(1, min(end, len(raw)))
    start = draw.randrange(end)
    size = min(draw.choice((1, 2, 4, 8, 16, 33, 200)), end - start)
    match draw.randrange(13):
        case 0 | 1 | 2 | 3 if fields:
            field = draw.choice(fields)
            near = bytes(raw[field.offset : field.offset + field.size])
            kind = {1: 0, 2: 2, 4: 4, 8: 10}[field.size]
            raw[field.offset : field.offset + field.size] = _edge(draw, kind, near)
        case 4:
            raw[start : start + 8] = _edge(draw, 10)[: len(raw) - start]
        case 5:
            raw[start : start + 4] = _edge(draw, 4)[: len(raw) - start]
        case 6:
            for _ in range(draw.randrange(1, 9)):
                raw[draw.randrange(end)] ^= 1 << draw.randrange(8)
        case 7:
            raw[start : start + size] = draw.randbytes(size)
        case 8:
            del raw[start : start + size]
        case 9:
            del raw[start:]
        case 10:
            raw[start:start] = raw[start : start + size]
        case 11:
            place = draw.randrange(max(1, min(len(other), end)))
            raw[start : start + size] = other[place : place + size]
        case _:
            raw[start:start] = draw.randbytes(size)


def _mutate(
    draw: random.Random, whole: Document, other: Document, changes: list[_DocumentChange]
) -> bytes:
    document = whole.copy()
    style = draw.random()
    # Bytes changed at random seldom get past the header, so most cases change the document.
    if style < 0.85:
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            draw.choice(changes)(draw, document)
    raw = document.encode()
    if style > 0.7:
        mutated = bytearray(raw)
        for _ in range(draw.choice((1, 1, 1, 2, 4))):
            fields, end = map_fields(bytes(mutated))
            if not mutated:
                break
            _change_bytes(draw, mutated, fields, end, other.encode())
        raw = bytes(mutated)
    return raw


def make_case(seeds: Sequence[Seed], seed: int, index: int, *, data_too: bool) -> Case:
    """Return case `index` of a run. With `data_too` the weights are changed as well."""
    draw = random.Random(f"{seed}/{index}")
    group = draw.choice(sorted({model.group for model in seeds}))
    model = draw.choice([model for model in seeds if model.group == group])
    names = model.file_names()
    changes: list[_DocumentChange] = [_change_pairs, _change_pairs, _change_tensors]
    if data_too:
        changes.append(_change_data)
    files: dict[str, bytes] = {}
    touched = {draw.randrange(len(names)) for _ in range(draw.choice((1, 1, 2)))}
    for place, (name, document) in enumerate(zip(names, model.files, strict=True)):
        if place in touched:
            other = draw.choice(draw.choice(seeds).files)
            files[name] = _mutate(draw, document, other, changes)
        else:
            files[name] = document.encode()
    if len(names) > 1 and draw.random() < 0.15:
        first, second = draw.choice(names), draw.choice(names)
        files[first], files[second] = files[second], files[first]
        if draw.random() < 0.5:
            del files[first]
    return Case(model.name, files, draw.choice(sorted(files)))
