"""mlx-lm's Mamba with the file's epsilon in its norms, and a state in float32.

In half precision the state would take on the rounding of every token read since the beginning.
"""

import mlx.core as mx
from mlx import nn
from mlx_lm.models import mamba
from mlx_lm.models.mamba import MambaBlock, ModelArgs

__all__ = ["Model", "ModelArgs"]


class Block(MambaBlock):  # type: ignore[misc]  # mlx_lm has no types
    """A mixer whose state is in float32, which follows from the type of A_log."""

    def ssm_step(
        self, x: mx.array, rates: mx.array, state: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:
        """Return the output [batch, channels] for one token and the state after it."""
        y, state = super().ssm_step(x, rates, state)
        return y.astype(x.dtype), state


class Model(mamba.Model):  # type: ignore[misc]
    """A Mamba model; `mixer_rms_eps` is the epsilon of all norms."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        for layer in self.layers:
            layer.mixer = Block(args)
            layer.norm = nn.RMSNorm(args.hidden_size, eps=args.mixer_rms_eps)
        self.backbone.norm_f = nn.RMSNorm(args.hidden_size, eps=args.mixer_rms_eps)
