"""Verification of a tree of drafted tokens in one pass over mlx-lm's models.

    rows        the nodes of a draft that the rows of a pass are
    compaction  keeps the rows of the accepted path in the caches, in order
    trees       whether a model's logits over a tree are those over chains, tried on first use

Models for which this does not hold are given a chain: see `trees`.
"""

from akunu_py.models.tree.compaction import keep_rows
from akunu_py.models.tree.rows import ArrangedTree
from akunu_py.models.tree.trees import Trees

__all__ = ["ArrangedTree", "Trees", "keep_rows"]
