"""Verifying a tree of drafted tokens in one pass over mlx-lm's models.

    rows        which row of a pass follows which: depths, and what each row sees
    arranged    nodes of a draft as rows, and back
    masks       the attention mask of a tree, for each kind of cache
    positions   rope with a position for each row, and attention scaled by position
    compaction  the rows of the accepted path stay in the caches, the others go
    forward     one pass with mask and positions in place, the model as it was afterwards
    trees       whether a model's tree logits are those of chains, tried on first use

SpecInfer (Miao et al. 2023, arXiv:2305.09781) has the mask; the positions are the depths. Models
for which this does not hold are given a chain: see `trees`.
"""

from akunu_py.models.tree.arranged import ArrangedTree
from akunu_py.models.tree.compaction import keep_rows
from akunu_py.models.tree.trees import Trees

__all__ = ["ArrangedTree", "Trees", "keep_rows"]
