"""mlx-lm's Mamba 2 with the norm of a mixer's output over each group of heads for itself.

mlx-lm's class, like transformers', takes it over all of them, which is the same for one group only;
Mamba's authors, and so Mamba-Codestral's eight groups, do not. That class also has the layers'
norms with MLX's own epsilon rather than the file's.
"""

from mlx import nn
from mlx_lm.models import mamba2
from mlx_lm.models.mamba2 import ModelArgs
from mlx_lm.models.nemotron_h import MambaRMSNormGated

__all__ = ["Model", "ModelArgs"]


class Model(mamba2.Model):  # type: ignore[misc]  # mlx_lm has no types
    """A Mamba 2 model."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        size = args.num_heads * args.head_dim
        for layer in self.layers:
            layer.norm = nn.RMSNorm(args.hidden_size, eps=args.layer_norm_epsilon)
            layer.mixer.norm = MambaRMSNormGated(
                size, eps=args.layer_norm_epsilon, group_size=size // args.n_groups
            )
