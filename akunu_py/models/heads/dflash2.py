"""A DFlash 2 head: a DFlash head with convolutions over its block, and a choice among candidates.

What it computes was read in the authors' config and header of a published head, and in the code of
vLLM, SGLang and llama.cpp (#27342):

- Attention and the feed-forward part of each layer have a convolution over the block's rows before
  and behind them. Its kernels are fixed ones plus some that the normed input makes for each row,
  one for each group of neighbouring channels. Features of the text are not convolved.
- A token is chosen among the k likeliest of its row. A candidate's score is its logit plus a
  bilinear form of two vectors, the candidate's and that of the token before, weighted by the row.
"""

from collections.abc import Sequence

import mlx.core as mx
from mlx import nn
from mlx_lm.models.cache import KVCache
from mlx_lm.models.qwen3 import ModelArgs

from akunu_py.models.heads.dflash import BlockForm, DFlashHead
from akunu_py.models.heads.head import SharedLayers, WalkStep, spread


class DFlash2Head(DFlashHead):
    """A DFlash 2 head; a further token depends on those before it."""

    def __init__(
        self,
        args: ModelArgs,
        shared: SharedLayers,
        layers: Sequence[int],
        form: BlockForm,
        *,
        taps: int,
        group: int,
        rank: int,
        candidates: int,
        vocabulary: int,
    ) -> None:
        """Make a head without weights.

        Its convolutions have `taps` rows and groups of `group` channels, and its vectors of the
        `vocabulary` have `rank` numbers. With 0 taps it has no convolutions, with a rank of 0 no
        choice among `candidates`.
        """
        super().__init__(args, shared, layers, form)
        self._convolves = taps > 0
        if self._convolves:
            for layer in self.layers:
                layer.attention_conv = Convolution(args.hidden_size, taps, group)
                layer.mlp_conv = Convolution(args.hidden_size, taps, group)
        if rank:
            self.candidate_selector = Selector(args.hidden_size, vocabulary, rank, candidates)

    def walk(self, hidden: mx.array, count: int | None = None) -> WalkStep:
        hidden = hidden[:, :count]
        if "candidate_selector" not in self:
            return super().walk(hidden)
        normed = self.norm(hidden)
        logits = self.logits_of_normed(normed)
        return self.candidate_selector.walk(normed, logits)

    def _layer(self, number: int, layer: nn.Module, x: mx.array, cache: KVCache) -> mx.array:
        if not self._convolves:
            return super()._layer(number, layer, x, cache)
        normed = layer.input_layernorm(x)
        before, behind = layer.attention_conv(normed)
        x = x + behind(self._attend(number, layer.self_attn, before(normed), cache))
        normed = layer.post_attention_layernorm(x)
        before, behind = layer.mlp_conv(normed)
        output: mx.array = x + behind(layer.mlp(before(normed)))
        return output


class Convolution(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """Two convolutions over the rows of a block, with kernels that its normed input makes."""

    def __init__(self, width: int, taps: int, group: int) -> None:
        super().__init__()
        self.base_kernel = mx.zeros((2, taps, width))
        self.kernel_projection = nn.Linear(width, 2 * taps * width // group, bias=False)
        self._group = group

    def __call__(self, normed: mx.array) -> "tuple[_Kernels, _Kernels]":
        """Return the convolutions before and behind a part of a layer, for its input [1, n, H]."""
        taps, width = self.base_kernel.shape[1:]
        made = self.kernel_projection(normed).reshape(-1, 2, taps, width // self._group, 1)
        kernels = made + self.base_kernel.reshape(2, taps, -1, self._group)
        kernels = kernels.reshape(-1, 2, taps, width)
        return _Kernels(kernels[:, 0]), _Kernels(kernels[:, 1])


class _Kernels:
    """A convolution with kernels [n, taps, H]: tap t of a row takes the t-th row before it."""

    def __init__(self, kernels: mx.array) -> None:
        self._kernels = kernels

    def __call__(self, x: mx.array) -> mx.array:
        """Return the rows [1, n, H] of a block, convolved; nothing comes before its first row."""
        rows, taps = self._kernels.shape[:2]
        padded = mx.pad(x, [(0, 0), (taps - 1, 0), (0, 0)])
        taken = (padded[:, taps - 1 - tap : taps - 1 - tap + rows] for tap in range(taps))
        stacked = mx.stack(list(taken), axis=2)
        convolved: mx.array = (stacked * self._kernels).sum(axis=2)
        return convolved


class Selector(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """Chooses among the likeliest tokens of each row by the token before."""

    def __init__(self, width: int, vocabulary: int, rank: int, candidates: int) -> None:
        super().__init__()
        self.hidden_projection = nn.Linear(width, rank, bias=False)
        self.predecessor_codebook = nn.Embedding(vocabulary, rank)
        self.successor_codebook = nn.Embedding(vocabulary, rank)
        self._candidates = candidates

    def walk(self, normed: mx.array, logits: mx.array) -> WalkStep:
        """Go through a block, for states [1, m, H] after the last norm and their logits."""
        ids = mx.argpartition(-logits, self._candidates - 1, axis=-1)[..., : self._candidates]
        own = mx.take_along_axis(logits, ids, axis=-1)
        # What a token before is multiplied with for each candidate: [1, m, candidates, rank].
        keys = self.hidden_projection(normed)[..., None, :] * self.successor_codebook(ids)
        places = iter(range(normed.shape[1]))

        def step(token: mx.array) -> tuple[mx.array, None]:
            place = next(places)
            scores = (
                own[:, place]
                + (keys[:, place] @ self.predecessor_codebook(token)[..., None])[..., 0]
            )
            return spread(scores[:, None], ids[:, place : place + 1], logits.shape[-1]), None

        return step
