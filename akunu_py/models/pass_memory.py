"""Memory of a pass besides weights and caches, by the sizes of a model's layers.

The largest pass is over a chunk of a prompt, or over the rows of a draft, whose logits are needed.
The factors are fitted to peaks measured with MLX's CPU backend, where attention keeps its scores
(`scripts/measure_memory.py`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import mlx.core as mx
from mlx import nn

from akunu_py.models.cache import LATENT_LAYERS
from akunu_py.models.cached_rows import PREFILL_CHUNK, prompt_rows
from akunu_py.models.device import has_kernels, on_cpu

_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head")
_EXPERTS_USED = ("top_k", "num_experts_per_tok", "k")
_USUAL_EXPERTS = 8
_FUSED_WIDTHS = frozenset({64, 80, 128})
"""Head widths for which MLX's GPU attention kernels keep no scores (MLX 0.32)."""

_DRAFTED_ROWS = 65
_FLOAT32 = 4
_WIDTH_FACTOR, _HIDDEN_FACTOR, _SCORES_FACTOR, _WIDENED_FACTOR = 1.25, 8.0, 1.1, 0.75


@dataclass(frozen=True, slots=True)
class PassShape:
    """Sizes on which the memory of a pass depends."""

    heads: int
    """The most heads of any attention or state space."""

    head_width: int
    """Width of a key."""

    width: int
    """Total output width of all matrices in the widest block."""

    hidden: int
    """Width between blocks."""

    vocabulary: int
    """Number of logits of a row."""

    planes: int = 1
    """Most codes per weight, by which the inputs of a layer are widened."""

    record_bytes: int = 0
    """What a pass with a draft holds for each of its rows until some are rejected."""

    def working_bytes(
        self,
        tokens: int,
        *,
        columns: int,
        number_bytes: int,
        quantized_cache: bool = False,
        replies: int = 1,
    ) -> int:
        """Return the bytes of the largest pass with a context of `tokens`.

        `columns` is the number of tokens in the largest cache, `number_bytes` the size of an
        activation. Prompts are read one at a time; the rows of drafts may be those of `replies`.
        """
        chunk = min(PREFILL_CHUNK, tokens)
        # Long contexts have passes over fewer positions.
        passes = (
            (prompt_rows(held, quantized=quantized_cache), held)
            for held in range(0, tokens, PREFILL_CHUNK)
        )
        pairs = max(rows * max(chunk, min(held + rows, columns)) for rows, held in passes)
        scores = self.heads * pairs * number_bytes
        if not on_cpu() and self.head_width in _FUSED_WIDTHS:
            scores = 0
        elif on_cpu() and quantized_cache and has_kernels():
            # Rows attend in parts, of which two are under way.
            scores = 2 * self.heads * min(chunk, _DRAFTED_ROWS) * columns * number_bytes
        mask = pairs * number_bytes
        rows = _WIDTH_FACTOR * self.width + _HIDDEN_FACTOR * self.hidden
        if self.planes > 1:
            rows += self.planes * (_WIDENED_FACTOR * self.width + self.hidden)
        prompt = chunk * rows * number_bytes + _SCORES_FACTOR * scores + mask
        # Logits, their float32 form, and the sampler's result.
        logits = self.vocabulary * (number_bytes + 2 * _FLOAT32)
        # Few rows attend to quantized keys as they are, with scores.
        own = self.heads * columns * number_bytes if quantized_cache else 0
        drafted = replies * _DRAFTED_ROWS * (rows * number_bytes + logits + self.record_bytes + own)
        return round(max(prompt, drafted))


def pass_shape(
    model: nn.Module, *, head_width: int, vocabulary: int, planes: int = 1, record_bytes: int = 0
) -> PassShape:
    """Return the sizes of a model whose shapes are known, evaluated or not."""
    modules = dict(model.named_modules())
    used = _numbers(modules.values(), _EXPERTS_USED)
    blocks: dict[str, int] = {}
    hidden = embedded = 0
    for path, module in modules.items():
        weight = module.get("weight")
        if not isinstance(weight, mx.array):
            continue
        if weight.ndim == 1:
            hidden = max(hidden, weight.size)
            continue
        block = _block(path)
        if block is None:
            embedded = max(embedded, weight.shape[-1])
            continue
        copies = 1
        if weight.ndim > 2:
            copies = weight.shape[0]
            if not isinstance(module, LATENT_LAYERS):
                copies = min(copies, max(used, default=_USUAL_EXPERTS))
        blocks[block] = blocks.get(block, 0) + copies * weight.shape[-2]
    return PassShape(
        heads=max(_numbers(modules.values(), _HEADS), default=1),
        head_width=head_width,
        width=max(blocks.values(), default=0),
        # Norms without weights do not show the width; an embedding does, unless it is packed.
        hidden=hidden or embedded,
        vocabulary=vocabulary,
        planes=planes,
        record_bytes=record_bytes,
    )


def _block(path: str) -> str | None:
    """Return the path of the block that contains a module, None outside of blocks."""
    parts = path.split(".")
    number = next((place for place, part in enumerate(parts) if part.isdigit()), None)
    return None if number is None else ".".join(parts[: number + 1])


def _numbers(modules: Iterable[nn.Module], names: tuple[str, ...]) -> set[int]:
    found = (getattr(module, name, None) for module in modules for name in names)
    return {value for value in found if isinstance(value, int) and not isinstance(value, bool)}
