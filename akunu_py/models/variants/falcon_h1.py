"""mlx-lm's Falcon H1 with the norm of a mixer's output over each group of heads for itself.

mlx-lm's class is told of the groups and norms over all heads; the checkpoint's own does not.
"""

from mlx_lm.models import falcon_h1
from mlx_lm.models.falcon_h1 import ModelArgs
from mlx_lm.models.nemotron_h import MambaRMSNormGated

__all__ = ["Model", "ModelArgs"]


class Model(falcon_h1.Model):  # type: ignore[misc]  # mlx_lm has no types
    """A Falcon H1 model."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        if not args.mamba_rms_norm:
            return
        for layer in self.layers:
            layer.mamba.norm = MambaRMSNormGated(
                args.mamba_d_ssm,
                eps=args.rms_norm_eps,
                group_size=args.mamba_d_ssm // args.mamba_n_groups,
            )
