"""Classes with another activation in the feed-forward part."""

import mlx.core as mx
from mlx import nn
from mlx_lm.models import gemma, llama, starcoder2


class _SquaredReLU(nn.Module):  # type: ignore[misc]  # mlx has no types
    def __init__(self, args: llama.ModelArgs) -> None:
        super().__init__()
        self.up_proj = nn.Linear(args.hidden_size, args.intermediate_size, bias=False)
        self.down_proj = nn.Linear(args.intermediate_size, args.hidden_size, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        y: mx.array = self.down_proj(nn.relu2(self.up_proj(x)))
        return y


class Arcee(llama.Model):  # type: ignore[misc]  # mlx_lm has no types
    """Llama with an ungated feed-forward part and the square of a ReLU.

    mlx-lm has no class for Arcee's models.
    """

    def __init__(self, args: llama.ModelArgs) -> None:
        super().__init__(args)
        for layer in self.layers:
            layer.mlp = _SquaredReLU(args)


class _GemmaFeedForward(gemma.MLP):  # type: ignore[misc]
    def __call__(self, x: mx.array) -> mx.array:
        y: mx.array = self.down_proj(nn.gelu_approx(self.gate_proj(x)) * self.up_proj(x))
        return y


class Gemma(gemma.Model):  # type: ignore[misc]
    """Gemma 1 with the activation it was trained with.

    mlx-lm's class computes the exact GELU, Google's models and llama.cpp its approximation by tanh.
    """

    def __init__(self, args: gemma.ModelArgs) -> None:
        super().__init__(args)
        for layer in self.layers:
            layer.mlp = _GemmaFeedForward(args.hidden_size, args.intermediate_size)


class _StarCoderFeedForward(starcoder2.MLP):  # type: ignore[misc]
    def __call__(self, x: mx.array) -> mx.array:
        y: mx.array = self.c_proj(nn.gelu_approx(self.c_fc(x)))
        return y


class StarCoder2(starcoder2.Model):  # type: ignore[misc]
    """StarCoder 2 with the activation it was trained with.

    The configurations of the released models name GELU's approximation by tanh, which llama.cpp
    computes too. mlx-lm's class computes the exact GELU.
    """

    def __init__(self, args: starcoder2.ModelArgs) -> None:
        super().__init__(args)
        for layer in self.layers:
            layer.mlp = _StarCoderFeedForward(args.hidden_size, args.intermediate_size)
