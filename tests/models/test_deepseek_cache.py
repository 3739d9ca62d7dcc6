"""The cache of attention over a latent vector."""

import pytest
from tiny_architectures.builder import build

from akunu_py import Engine
from akunu_py.system.errors import ConfigError


@pytest.mark.parametrize("weights", ["dense", "quantized"])
def test_a_latent_vector_is_not_quantized(tmp_path, weights):
    tiny = build("deepseek2")
    for name in tiny.tensors:
        if name.endswith(("attn_k_b.weight", "attn_v_b.weight")):
            tiny.quantize(name, "Q8_0")
    path = tiny.write(tmp_path / "model.gguf")
    with pytest.raises(ConfigError, match=r"one small vector per token.*leave kv_bits out"):
        Engine.load(path, kv_bits=8, weights=weights)
