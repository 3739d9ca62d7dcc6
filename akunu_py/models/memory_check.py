"""Whether what is to be loaded fits into this machine's memory, all of it together."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from akunu_py.errors import ConfigError, MemoryLimitError
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models import requirements as needs
from akunu_py.models.load import LoadOptions

USUAL_CONTEXT = 4096
"""Tokens for which there should be memory where nobody says how many there will be."""

PROGRAM_BYTES = 150_000_000
"""Of Python, MLX and the other libraries, measured on Linux."""

_NOTICED = 10_000_000
"""Bytes in use already that are worth a word."""


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model to load: where it lies, how, and the bits of its KV cache; None: not quantized."""

    path: Path
    options: LoadOptions
    kv_bits: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """What is in memory, in words, and its bytes."""

    what: str
    num_bytes: int


def memory_parts(
    models: Sequence[PlannedModel],
    *,
    context: int | None = None,
    others: Sequence[MemoryPart] = (),
) -> list[MemoryPart]:
    """Return what will be in memory at once.

    That is weights and caches of each model, the largest pass of any (passes come one by one), the
    program, what it holds already, and `others`. Without a `context`, in tokens, there should be
    room for a usual conversation. Raises as `requirements` does.
    """
    parts: list[MemoryPart] = []
    largest = 0
    for model in models:
        found = needs.requirements(model.path, model.options)
        tokens = min(context or USUAL_CONTEXT, found.context)
        bits = model.kv_bits if found.quantizable else None
        name = model.path.name
        parts += [
            MemoryPart(f"the weights of {name}", found.weights_bytes),
            MemoryPart(f"its cache of {tokens:,} tokens", found.cache_bytes(tokens, kv_bits=bits)),
        ]
        largest = max(largest, found.working_bytes(tokens, kv_bits=bits))
    parts += [MemoryPart("the largest pass", largest), *others]
    held = mx.get_active_memory()
    if held > _NOTICED:
        parts.append(MemoryPart("what is loaded already", held))
    parts.append(MemoryPart("the program", PROGRAM_BYTES))
    return parts


def check_memory(
    models: Sequence[PlannedModel],
    *,
    context: int | None = None,
    others: Sequence[MemoryPart] = (),
) -> None:
    """Raise MemoryLimitError with figures where what is to be loaded cannot fit into memory.

    Takes and raises what `memory_parts` does.
    """
    limit = needs.memory_limit()
    # Weights in a file take at least a bit: 32 times that is more than any form of them.
    on_disk = sum(_size_on_disk(model.path) for model in models)
    held = mx.get_active_memory()
    known = sum(other.num_bytes for other in others) + held + PROGRAM_BYTES
    if context is None and 32 * on_disk + known < limit // 2:
        return
    parts = memory_parts(models, context=context, others=others)
    needed = sum(part.num_bytes for part in parts)
    if needed <= limit:
        return
    names = " and ".join(model.path.name for model in models)
    listed = ", ".join(f"{_size_text(part.num_bytes)} for {part.what}" for part in parts)
    raise MemoryLimitError(
        f"{names} {'need' if len(models) > 1 else 'needs'} about {_size_text(needed)} ({listed}) "
        f"and this machine has {_size_text(limit)} for it. Take a smaller model or quantization, "
        "--weights quantized, a shorter --context or --kv-bits 8; --force loads it all the same",
        fits_alone=needed - held <= limit,
    )


def _size_on_disk(path: Path) -> int:
    try:
        if path.is_dir():
            return sum(file.stat().st_size for file in path.glob("*.safetensors"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    with GGUFFile.open(path) as file:
        return file.nbytes


def _size_text(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 10**8 else f"{size / 1e6:.1f} MB"
