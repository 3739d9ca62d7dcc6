"""Llama's class with a mixture of experts in each layer: Mixtral and models merged like it.

mlx-lm's `mixtral` takes the width of a head from that of the model and knows plain positions only.
"""

from dataclasses import dataclass

from mlx_lm.models import llama
from mlx_lm.models.mixtral import MixtralSparseMoeBlock


@dataclass
class ModelArgs(llama.ModelArgs):  # type: ignore[misc]  # mlx-lm has no types
    """Llama's arguments, and the numbers of experts."""

    num_local_experts: int = 8
    num_experts_per_tok: int = 2


class Model(llama.Model):  # type: ignore[misc]
    """The model; its mixtures stand where the dense feed-forward parts stood."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        for layer in self.layers:
            layer.mlp = MixtralSparseMoeBlock(args)
