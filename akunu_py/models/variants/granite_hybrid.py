"""mlx-lm's hybrid Granite with the norm of a mixer's output over each group of heads for itself.

mlx-lm's class norms over all heads, which is the same for the one group of the released models.
"""

from mlx_lm.models import granitemoehybrid
from mlx_lm.models.granitemoehybrid import ModelArgs
from mlx_lm.models.nemotron_h import MambaRMSNormGated

__all__ = ["Model", "ModelArgs"]


class Model(granitemoehybrid.Model):  # type: ignore[misc]  # mlx_lm has no types
    """A Granite 4 model with state-space layers."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        for layer in self.layers:
            if layer.layer_type == "mamba":
                size = layer.mamba.intermediate_size
                layer.mamba.norm = MambaRMSNormGated(
                    size, eps=args.rms_norm_eps, group_size=size // args.mamba_n_groups
                )
