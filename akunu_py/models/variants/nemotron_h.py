"""mlx-lm's Nemotron H with mixtures that differ from layer to layer, as the Puzzle models' do."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

from mlx_lm.models import nemotron_h
from mlx_lm.models.nemotron_h import NemotronHMoE


@dataclass
class ModelArgs(nemotron_h.ModelArgs):  # type: ignore[misc]  # mlx_lm has no types
    """Nemotron H's, and `moe_per_layer`: width of an expert and experts a token, or None."""

    moe_per_layer: Sequence[tuple[int, int] | None] | None = None


class Model(nemotron_h.Model):  # type: ignore[misc]
    """A Nemotron H or Nemotron 3 model."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        for layer, sizes in zip(self.layers, args.moe_per_layer or (), strict=False):
            if sizes is not None:
                of_layer = copy(args)
                of_layer.moe_intermediate_size, of_layer.num_experts_per_tok = sizes
                layer.mixer = NemotronHMoE(of_layer)
