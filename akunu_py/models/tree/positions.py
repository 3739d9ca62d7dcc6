"""A position for each row, where mlx-lm's models take only one for the first row of a pass.

`mx.fast.rope` takes an offset for each entry of a batch. So rows are moved to the batch axis, where
each is the first row of a sequence, rotated, and moved back. Models call rope through an attribute
of their attention, which is replaced with another callable during a pass.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm.models import ministral3, mistral4

_ROPE_KEYS = frozenset({"rope", "rotary_emb"})


class RowRope:
    """A rope that turns row i of x [1, heads, n, dims] by `offset` + depths[i]."""

    def __init__(self, rope: Callable[..., mx.array], depths: mx.array) -> None:
        self._rope = rope
        self._depths = depths

    def __call__(
        self, x: mx.array, offset: int | mx.array = 0, *args: Any, **options: Any
    ) -> mx.array:
        """Return x rotated; raise ValueError for an x of another shape."""
        if x.ndim != 4 or x.shape[0] != 1 or x.shape[2] != self._depths.size:
            raise ValueError(f"rows of a tree cannot be rotated in the shape {x.shape}")
        rows = x.transpose(2, 1, 0, 3)
        turned = self._rope(rows, offset + self._depths, *args, **options)
        return turned.transpose(2, 1, 0, 3)


class RowScaledAttention:
    """Attention whose queries are scaled by the position of each row.

    The scale of Ministral 3 and Mistral 4 is 1 + beta log(1 + floor(position / length)).
    """

    def __init__(self, attention: nn.Module, depths: mx.array) -> None:
        self._attention = attention
        self._depths = depths
        if isinstance(attention, ministral3.Attention):
            self._beta = attention.scaling_beta
            self._length = attention.original_max_position_embeddings
        else:
            parameters = attention.args.rope_parameters
            self._beta = parameters["llama_4_scaling_beta"]
            self._length = parameters["original_max_position_embeddings"]

    def __call__(
        self,
        x: mx.array,
        _in_order: mx.array | None = None,
        mask: mx.array | None = None,
        cache: Any | None = None,
    ) -> mx.array:
        """Return the attention's output for x [1, n, width].

        The model's own scale is for rows in order, and is not used.
        """
        positions = (0 if cache is None else cache.offset) + self._depths
        scale = 1 + self._beta * mx.log(1 + mx.floor(positions / self._length))
        out: mx.array = self._attention(x, scale[:, None].astype(x.dtype), mask, cache)
        return out


@dataclass(frozen=True, slots=True)
class _Slot:
    """An entry of a module, and a function that makes its replacement for a pass."""

    owner: nn.Module
    key: str
    make: Callable[[Any, mx.array], Any]


class RowPositions:
    """The places where one model uses positions."""

    def __init__(self, model: nn.Module) -> None:
        modules: Sequence[nn.Module] = model.modules()
        ropes = [
            value for module in modules for key, value in module.items() if _is_rope(key, value)
        ]
        # A rope inside another rope must not add the depths again.
        inner = {id(part) for rope in ropes for part in rope.modules()}
        self._slots = [
            _Slot(module, key, RowRope)
            for module in modules
            if id(module) not in inner
            for key, value in module.items()
            if _is_rope(key, value)
        ] + [
            _Slot(module, key, RowScaledAttention)
            for module in modules
            for key, value in module.items()
            if isinstance(value, ministral3.Attention | mistral4.Mistral4Attention)
        ]

    @contextmanager
    def at(self, depths: mx.array) -> Iterator[None]:
        """Place the rows of a pass at these depths, int32 [n], behind the rows in the caches."""
        with ExitStack() as stack:
            for slot in self._slots:
                value = slot.owner[slot.key]
                # Assigned as an entry of the module, a dict, to keep the order of its parameters.
                slot.owner[slot.key] = slot.make(value, depths)
                stack.callback(slot.owner.__setitem__, slot.key, value)
            yield


def _is_rope(key: str, value: Any) -> bool:
    if not isinstance(value, nn.Module) or not callable(value):
        return False
    name = type(value).__name__.lower()
    return key in _ROPE_KEYS or "rope" in name or "rotary" in name
