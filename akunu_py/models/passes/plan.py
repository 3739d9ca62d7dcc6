"""Which rows a pass has."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import mlx.core as mx
import numpy as np

from akunu_py.models.passes.trees import TreeMasks, TreeRows
from akunu_py.models.rollback.caches import leaves


@dataclass(eq=False)
class PassRows:
    """The rows of one text in a pass, and the caches that take them in."""

    tokens: mx.array
    """[n]; they may be not known on the host yet. [texts, n] where caches hold several texts."""
    caches: Sequence[Any]
    tree: TreeRows | None = None
    """Which row follows which; None where each follows the one before it."""
    record: AbstractContextManager[object] = field(default_factory=nullcontext)
    """Entered around what is computed for this text alone."""
    idle: bool = False
    """Whether the device has nothing to do until it gets these rows."""
    wanted: slice | None = None
    """The rows whose logits are asked for, if not all; the others give the pass its shape."""

    @cached_property
    def places(self) -> list[int]:
        """The position of each row in the text."""
        offsets = (getattr(leaf, "offset", None) for leaf in leaves(self.caches))
        held = next((offset for offset in offsets if isinstance(offset, int)), 0)
        depths = range(self.tokens.size) if self.tree is None else self.tree.depths.tolist()
        return [held + depth for depth in depths]


class PassPlan:
    """The rows of all texts of a pass, in order."""

    def __init__(self, parts: Sequence[PassRows]) -> None:
        self.parts = parts
        self.sizes = [part.tokens.size for part in parts]
        # Behind the last row of each text.
        self.ends = list(accumulate(self.sizes))
        self.rows = self.ends[-1]
        # What the rows of each text see, where latent attention asked for it.
        self.latent_masks: list[Any] = []
        # The latent keys and values that attention has fetched last.
        self.latents: list[Any] = []
        # The slots of a cache that a mixer has asked for, and not used yet.
        self.asked: list[tuple[Any, int]] = []

    def turned(self, axis: int) -> int:
        """Return the axis of rows that are turned as each text has them; 0 for texts of one row.

        Those need no turn.
        """
        return 0 if self.rows == len(self.parts) else axis

    @cached_property
    def _masks(self) -> list[TreeMasks | None]:
        """What makes the masks of each tree, the same for all layers."""
        return [None if part.tree is None else TreeMasks(part.tree) for part in self.parts]

    @property
    def is_chain(self) -> bool:
        """Whether these are rows of one text in order, as mlx-lm's classes take them."""
        return len(self.parts) == 1 and self.parts[0].tree is None

    @cached_property
    def places(self) -> mx.array:
        """The position of each row in its text, int32 [rows]; asked for before caches move."""
        return mx.array(np.array([place for part in self.parts for place in part.places], np.int32))

    def masks(self, caches: Sequence[Any], **options: Any) -> list[Any]:
        """Return what the rows of each text see of what its cache returns."""
        return [
            cache.make_mask(size, **options)
            if tree is None
            else tree.of(cache, size, options.get("window_size"))
            for cache, tree, size in zip(caches, self._masks, self.sizes, strict=True)
        ]

    @property
    def windows(self) -> set[int]:
        """Lengths of the windows that layers asked for with masks of trees."""
        return set().union(*(masks.windows for masks in self._masks if masks is not None))

    def split(self, rows: mx.array, axis: int) -> list[mx.array]:
        """Return each text's part of an array with all rows along an axis."""
        return [rows] if len(self.parts) == 1 else list(mx.split(rows, self.ends[:-1], axis=axis))


def by_row(array: mx.array, axis: int) -> mx.array:
    """Turn [rows, ..., 1, ...] with one row of each text into [1, ..., rows, ...], and back."""
    return array.swapaxes(0, axis) if axis else array
