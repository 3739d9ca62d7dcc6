"""Classes with Mamba layers: their norms, the precision of their states, their sizes."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import mlx.core as mx
from mlx import nn
from mlx_lm.models import falcon_h1, granitemoehybrid, jamba, mamba, mamba2, nemotron_h

from akunu_py.models.variants.experts import choose_experts, weighted_sum


class _MambaBlock(mamba.MambaBlock):  # type: ignore[misc]  # mlx_lm has no types
    def ssm_step(
        self, x: mx.array, rates: mx.array, state: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:
        # The state has the type of A_log.
        y, state = super().ssm_step(x, rates, state)
        return y.astype(x.dtype), state


class Mamba(mamba.Model):  # type: ignore[misc]
    """Mamba with the file's epsilon in its norms, and states in float32.

    In half precision a state would accumulate the rounding of every token since the beginning.
    `mixer_rms_eps` is the epsilon of all norms.
    """

    def __init__(self, args: mamba.ModelArgs) -> None:
        super().__init__(args)
        for layer in self.layers:
            layer.mixer = _MambaBlock(args)
            layer.norm = nn.RMSNorm(args.hidden_size, eps=args.mixer_rms_eps)
        self.backbone.norm_f = nn.RMSNorm(args.hidden_size, eps=args.mixer_rms_eps)


@dataclass
class JambaArgs(jamba.ModelArgs):  # type: ignore[misc]
    """Arguments of mlx-lm's class, and `expert_layers`: which layers have experts.

    mlx-lm's class asks for a period of these layers, which a file does not state.
    """

    expert_layers: tuple[int, ...] = ()


class _JambaMixer(jamba.JambaMambaMixer):  # type: ignore[misc]
    def ssm_step(
        self, x: mx.array, rates: mx.array, state: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:
        y, state = super().ssm_step(x.astype(mx.float32), rates, state)
        return y.astype(x.dtype), state


class _JambaMixture(jamba.JambaSparseMoeBlock):  # type: ignore[misc]
    def __call__(self, x: mx.array) -> mx.array:
        used = self.num_experts_per_tok
        chosen, weights = choose_experts(
            self.router(x), None, used=used, scoring="softmax", normed=False
        )
        return weighted_sum(self.switch_mlp(x, chosen), weights)


class Jamba(jamba.Model):  # type: ignore[misc]
    """Jamba with the weights of experts as AI21's own code computes them, and states in float32.

    An expert's weight is its probability among all experts; mlx-lm's class scales the weights of
    the chosen ones to sum to one. Its states have the type of the activations, whose rounding adds
    up from token to token.
    """

    def __init__(self, args: JambaArgs) -> None:
        super().__init__(args)
        for index, layer in enumerate(self.layers):
            routed = index in args.expert_layers
            layer.feed_forward = _JambaMixture(args) if routed else jamba.JambaMLP(args)
            if not layer.is_attn:
                layer.mamba = _JambaMixer(args)


def _grouped_norm(size: int, groups: int, eps: float) -> nn.Module:
    """Return a norm of a mixer's output, `size` wide, that norms each group of heads separately."""
    return nemotron_h.MambaRMSNormGated(size, eps=eps, group_size=size // groups)


class Mamba2(mamba2.Model):  # type: ignore[misc]
    """Mamba 2 with a separate norm for each group of heads, and the file's epsilon in its norms.

    mlx-lm's class, like transformers', norms over all groups together, which is the same only for
    one group. Mamba's authors norm each group, and so does Mamba-Codestral with its eight groups.
    The layers' norms in mlx-lm's class have MLX's own epsilon.
    """

    def __init__(self, args: mamba2.ModelArgs) -> None:
        super().__init__(args)
        size, eps = args.num_heads * args.head_dim, args.layer_norm_epsilon
        for layer in self.layers:
            layer.norm = nn.RMSNorm(args.hidden_size, eps=eps)
            layer.mixer.norm = _grouped_norm(size, args.n_groups, eps)


class FalconH1(falcon_h1.Model):  # type: ignore[misc]
    """Falcon H1 with a separate norm for each group of heads of a mixer.

    mlx-lm's class is given the groups and norms over all heads; the checkpoint's own code does not.
    """

    def __init__(self, args: falcon_h1.ModelArgs) -> None:
        super().__init__(args)
        if args.mamba_rms_norm:
            for layer in self.layers:
                layer.mamba.norm = _grouped_norm(
                    args.mamba_d_ssm, args.mamba_n_groups, args.rms_norm_eps
                )


class GraniteHybrid(granitemoehybrid.Model):  # type: ignore[misc]
    """Granite 4 with a separate norm for each group of heads of a mixer.

    mlx-lm's class norms over all heads, which is the same for the one group of the released models.
    """

    def __init__(self, args: granitemoehybrid.ModelArgs) -> None:
        super().__init__(args)
        for layer in self.layers:
            if layer.layer_type == "mamba":
                layer.mamba.norm = _grouped_norm(
                    layer.mamba.intermediate_size, args.mamba_n_groups, args.rms_norm_eps
                )


@dataclass
class NemotronHArgs(nemotron_h.ModelArgs):  # type: ignore[misc]
    """Arguments of mlx-lm's class, and `moe_per_layer`.

    For each layer with experts that is the width of an expert and the number of experts a token
    uses.
    """

    moe_per_layer: Sequence[tuple[int, int] | None] | None = None


class NemotronH(nemotron_h.Model):  # type: ignore[misc]
    """Nemotron H and 3 with mixtures that differ from layer to layer, as in the Puzzle models."""

    def __init__(self, args: NemotronHArgs) -> None:
        super().__init__(args)
        for layer, sizes in zip(self.layers, args.moe_per_layer or (), strict=False):
            if sizes is not None:
                of_layer = copy(args)
                of_layer.moe_intermediate_size, of_layer.num_experts_per_tok = sizes
                layer.mixer = nemotron_h.NemotronHMoE(of_layer)
