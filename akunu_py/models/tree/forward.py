"""One pass over the rows of a tree."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import mlx.core as mx
from mlx import nn

from akunu_py.models.rollback import leaves
from akunu_py.models.tree.masks import TreeMasks
from akunu_py.models.tree.positions import RowPositions
from akunu_py.models.tree.rows import TreeRows


class TreeForward:
    """Passes of one model over trees.

    Attributes:
        positions: where the model's positions come in.
        windows: lengths of the sliding windows that its layers asked for in passes so far.

    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.positions = RowPositions(model)
        self.windows: set[int] = set()

    def __call__(self, tokens: Sequence[int], rows: TreeRows, caches: Sequence[Any]) -> mx.array:
        """Return the logits [1, n, vocabulary] after each row; the caches take in n rows.

        Model and caches are as they were once the pass is built, before it is computed. Raises
        what the model does where it takes no such mask or positions.
        """
        masks = TreeMasks(rows)
        with ExitStack() as stack:
            for cache in leaves(caches):
                # An entry of the object's own, which hides the method of its class.
                stack.callback(vars(cache).pop, "make_mask", None)
                cache.make_mask = masks.of(cache)
            stack.enter_context(self.positions.at(mx.array(rows.depths)))
            logits: mx.array = self._model(mx.array(list(tokens))[None], cache=caches)
        self.windows |= masks.windows
        return logits
