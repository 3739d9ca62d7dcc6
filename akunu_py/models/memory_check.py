"""Whether models fit into this machine's memory, and what they and their replies take of it."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx

from akunu_py.gguf.reader import paths_of_parts
from akunu_py.models import device
from akunu_py.models.adapter_files import adapter_place
from akunu_py.models.head_places import head_place
from akunu_py.models.rank_split import PlannedGroup
from akunu_py.system.errors import ConfigError, MemoryLimitError
from akunu_py.values.load_options import EngineOptions, KVBits, LoadOptions

if TYPE_CHECKING:
    from akunu_py.models.requirements import Requirements

USUAL_CONTEXT = 4096
"""Tokens that memory should hold where no context is given."""

PROGRAM_BYTES = 150_000_000
"""Memory of Python, MLX and the other libraries, measured on Linux."""

_NOTICED = 10_000_000
"""Bytes in use from which a message names them."""


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model to load."""

    path: Path
    options: LoadOptions
    kv_bits: KVBits | None = None
    """Of its caches; None for unquantized ones."""

    group: PlannedGroup | None = None
    """The rank that loads its part; None for the whole model."""

    heads: str | Path | None = None
    """The prediction head: "own", the path of another, or None for none."""

    def requirements(self) -> "Requirements":
        """Return the memory it needs; raises as `requirements` does."""
        from akunu_py.models.requirements import requirements  # builds the model

        path = self.path.expanduser()
        return requirements(path, self.options, self.group, heads=self.heads)


def planned_models(
    path: Path, options: EngineOptions, group: PlannedGroup | None = None
) -> list[PlannedModel]:
    """Return the models of an engine: the one at `path`, and its draft model."""
    models = [PlannedModel(path, options.of_model(), options.kv_bits, group, options.heads)]
    if options.draft_model is not None:
        draft = Path(options.draft_model)
        # Its cache is never quantized.
        models.append(PlannedModel(draft, LoadOptions(weights=options.weights)))
    return models


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """A part of the memory in use: what it is, in words, and its bytes."""

    what: str
    num_bytes: int


def memory_parts(
    models: Sequence[PlannedModel],
    *,
    context: int | None = None,
    others: Sequence[MemoryPart] = (),
) -> list[MemoryPart]:
    """Return the parts of memory that will be in use at once.

    They are the weights and caches of each model, the largest pass of any (passes run one by one),
    the program, what it holds already, and `others`. Without a `context`, in tokens, USUAL_CONTEXT
    is assumed. Raises as `requirements` does.
    """
    return [*MemoryNeeds(models, context=context).parts(), *_other_parts(others)]


def available_memory() -> int:
    """Return the bytes that this process can take before the machine is short of memory.

    Freed buffers that MLX keeps are among them.
    """
    room = device.memory_limit() - mx.get_active_memory()
    system = device.free_memory()
    return room if system is None else min(room, system + mx.get_cache_memory())


class MemoryNeeds:
    """What models that are used together take of the memory: themselves, and their replies.

    Their files are read at the first question, which raises as `requirements` does.
    """

    def __init__(self, models: Sequence[PlannedModel], *, context: int | None = None) -> None:
        self._models = models
        self._context = context

    @property
    def context(self) -> int:
        return self.trained if self._context is None else min(self._context, self.trained)

    @property
    def first(self) -> "Requirements":
        """Return the needs of the first model."""
        return self._found[0]

    @property
    def trained(self) -> int:
        """Return the tokens that the first model was trained for."""
        return self.first.context

    def loading(self) -> int:
        return _total(self.parts())

    def parts(self) -> list[MemoryPart]:
        """Return the parts that the models themselves need."""
        parts: list[MemoryPart] = []
        largest = 0
        for model, found in zip(self._models, self._found, strict=True):
            tokens = min(self._context or USUAL_CONTEXT, found.context)
            bits = model.kv_bits
            name = model.path.name
            parts.append(MemoryPart(f"the weights of {name}", found.weights_bytes))
            if found.head is not None:
                parts.append(MemoryPart("its prediction head", found.head.weights_bytes))
            rows = found.cache_bytes(tokens, kv_bits=bits)
            parts.append(MemoryPart(f"its cache of {tokens:,} tokens", rows))
            largest = max(largest, found.working_bytes(tokens, kv_bits=bits))
        return [*parts, MemoryPart("the largest pass", largest)]

    def rows(self, tokens: int) -> int:
        pairs = zip(self._models, self._found, strict=True)
        return sum(found.cache_bytes(tokens, kv_bits=model.kv_bits) for model, found in pairs)

    def largest_pass(self, tokens: int, replies: int = 1) -> int:
        pairs = zip(self._models, self._found, strict=True)
        return max(
            found.working_bytes(tokens, kv_bits=model.kv_bits, replies=replies)
            for model, found in pairs
        )

    def replies(self, tokens: int, available: int) -> int:
        """Return how many replies of `tokens` tokens, prompts included, `available` bytes hold.

        They are made at once, and share passes.
        """
        tokens = min(tokens, self.context)
        each = max(1, self.rows(tokens))
        counts = range(1, max(0, available) // each + 1)
        return bisect_right(
            counts, available, key=lambda count: count * each + self.largest_pass(tokens, count)
        )

    @cached_property
    def _found(self) -> "list[Requirements]":
        return [model.requirements() for model in self._models]


def _other_parts(others: Sequence[MemoryPart]) -> list[MemoryPart]:
    """Return the parts that are in use besides models to load."""
    parts = list(others)
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
    available: int | None = None,
) -> None:
    """Raise MemoryLimitError, with figures, for models that do not fit into memory together.

    `available` are the bytes that may be taken besides those in use; without it, the memory of the
    machine counts, whatever other programs use. On a Mac whose memory is critically short no model
    fits. Otherwise takes and raises what `memory_parts` does.
    """
    device.yield_to_others()
    if available is None and context is None and _surely_fit(models, others):
        return
    parts = memory_parts(models, context=context, others=others)
    total = _total(parts)
    limit = device.memory_limit() if available is None else available + _total(_other_parts(others))
    if total <= limit:
        return
    names = " and ".join(model.path.name for model in models)
    listed = ", ".join(f"{_size_text(part.num_bytes)} for {part.what}" for part in parts)
    raise MemoryLimitError(
        f"{names} {'need' if len(models) > 1 else 'needs'} about {_size_text(total)} ({listed}) "
        f"and this machine has {_size_text(limit)} for it. Take a smaller model or quantization, "
        "the setting weights quantized, a shorter --context or --kv-bits 8; --force loads it "
        "anyway",
        fits_alone=total - mx.get_active_memory() <= limit,
    )


def _surely_fit(models: Sequence[PlannedModel], others: Sequence[MemoryPart] = ()) -> bool:
    """Return whether models certainly fit by their size on disk; no file is read."""
    # A weight takes at least a bit in a file, and at most 32 bits in memory.
    places = [model.path for model in models]
    places += [head_place(model.path, model.heads) for model in models if model.heads is not None]
    adapters = (model.options.adapter for model in models)
    places += [adapter_place(given)[0] for given in adapters if given is not None]
    weights = 32 * sum(_size_on_disk(place) for place in places)
    known = sum(other.num_bytes for other in others) + mx.get_active_memory() + PROGRAM_BYTES
    return weights + known < device.memory_limit() // 2


def _total(parts: Sequence[MemoryPart]) -> int:
    return sum(part.num_bytes for part in parts)


def _size_on_disk(path: Path) -> int:
    try:
        files = paths_of_parts(path)
        if path.is_dir():
            # Heads may lie in a folder of their own.
            files = [*path.glob("*.safetensors"), *path.glob("*/*.safetensors")]
        return sum(file.stat().st_size for file in files if file.is_file())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None


def _size_text(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 10**8 else f"{size / 1e6:.1f} MB"
