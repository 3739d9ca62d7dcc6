"""Verification of a tree of drafted tokens in one pass over mlx-lm's models.

    rows        which row of a pass follows which, and the nodes of a draft that they are
    forward     one pass with masks and positions in place; the model is unchanged afterwards
    positions   rope with a position for each row, and attention scaled by position
    compaction  keeps the rows of the accepted path in the caches, in order
    trees       whether a model's logits over a tree are those over chains, tried on first use

The mask is SpecInfer's (Miao et al. 2023, arXiv:2305.09781); positions are depths. Models for which
this does not hold are given a chain: see `trees`.
"""

from akunu_py.models.tree.compaction import keep_rows
from akunu_py.models.tree.rows import ArrangedTree
from akunu_py.models.tree.trees import Trees

__all__ = ["ArrangedTree", "Trees", "keep_rows"]
