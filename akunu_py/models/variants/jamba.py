"""mlx-lm's Jamba with the experts' weights as AI21's own code has them, and a state in float32.

A chosen expert weighs as much as it does among all of them. mlx-lm's class lets the chosen ones'
weights sum to one, and asks for a period of the layers with experts, which a file does not say. It
has the state in the type of the activations, whose rounding adds up from token to token.
"""

from dataclasses import dataclass

import mlx.core as mx
from mlx_lm.models import jamba
from mlx_lm.models.jamba import JambaMambaMixer, JambaMLP, JambaSparseMoeBlock


@dataclass
class ModelArgs(jamba.ModelArgs):  # type: ignore[misc]  # mlx_lm has no types
    """Jamba's, and `expert_layers`: which layers have experts."""

    expert_layers: tuple[int, ...] = ()


class Mixer(JambaMambaMixer):  # type: ignore[misc]
    """A mixer whose state is in float32."""

    def ssm_step(
        self, x: mx.array, rates: mx.array, state: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:
        """Return the outputs [batch, length, channels] and the state after the last of them."""
        y, state = super().ssm_step(x.astype(mx.float32), rates, state)
        return y.astype(x.dtype), state


class Mixture(JambaSparseMoeBlock):  # type: ignore[misc]
    """A mixture of experts."""

    def __call__(self, x: mx.array) -> mx.array:
        """Return the weighted sum over the likeliest experts of each row of x [..., width]."""
        weights = mx.softmax(self.router(x), axis=-1, precise=True)
        used = self.num_experts_per_tok
        chosen = mx.argpartition(-weights, kth=used - 1, axis=-1)[..., :used]
        weights = mx.take_along_axis(weights, chosen, axis=-1)
        y: mx.array = self.switch_mlp(x, chosen)
        return (y * weights[..., None]).sum(axis=-2)


class Model(jamba.Model):  # type: ignore[misc]
    """A Jamba model."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        for index, layer in enumerate(self.layers):
            layer.feed_forward = Mixture(args) if index in args.expert_layers else JambaMLP(args)
            if not layer.is_attn:
                layer.mamba = Mixer(args)
