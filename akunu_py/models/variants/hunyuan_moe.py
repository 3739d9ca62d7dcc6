"""Hunyuan A13B with the weights of a token's experts normed, as the model was trained."""

import mlx.core as mx
from mlx_lm.models import hunyuan
from mlx_lm.models.hunyuan import ModelArgs, MoeBlock

from akunu_py.models.variants.routing import choose_experts

__all__ = ["Model", "ModelArgs"]


class Mixture(MoeBlock):  # type: ignore[misc]  # mlx_lm has no types
    """A mixture beside the part that all tokens go through."""

    def __call__(self, x: mx.array) -> mx.array:
        """Return the sum of both, of the shape of x."""
        chosen, weights = choose_experts(self.gate(x), None, used=self.top_k, scoring="softmax")
        y = (self.switch_mlp(x, chosen) * weights[..., None]).sum(axis=-2).astype(x.dtype)
        both: mx.array = y + self.shared_mlp(x)
        return both


class Model(hunyuan.Model):  # type: ignore[misc]
    """Hunyuan's with this mixture."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        for number, layer in enumerate(self.model.layers):
            layer.mlp = Mixture(args, number)
