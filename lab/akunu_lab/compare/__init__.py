"""akunu next to other programs: the same weights, the same token ids, in one interleaved run."""

# Before a module here imports MLX, which would then compute without akunu's kernels.
from akunu_py.api import Engine as Engine
