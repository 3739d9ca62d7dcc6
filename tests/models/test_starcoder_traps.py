"""What llama.cpp's own rounding hides: its table of GELU has values in float16 only."""

import math

import mlx.core as mx
import numpy as np

from akunu_py.models.variants.feed_forward import StarCoder2, StarCoder2Args


def test_the_activation_is_gelus_approximation_by_tanh():
    arguments = StarCoder2Args(
        model_type="starcoder2", hidden_size=8, num_hidden_layers=1, intermediate_size=8,
        num_attention_heads=2, num_key_value_heads=2, vocab_size=8,
    )  # fmt: skip
    part = StarCoder2(arguments).layers[0].mlp
    for layer in (part.c_fc, part.c_proj):
        layer.weight, layer.bias = mx.eye(8), mx.zeros(8)
    x = np.linspace(-3, 3, 8)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    expected = 0.5 * x * (1 + np.tanh(inner))
    # By the error function it would differ by 5e-4.
    np.testing.assert_allclose(part(mx.array(x, mx.float32)), expected, atol=2e-6)
