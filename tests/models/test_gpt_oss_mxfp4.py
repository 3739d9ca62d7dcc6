"""gpt-oss as it is distributed: stacks of experts in MXFP4."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear
from tiny_architectures.builder import build

from akunu_py.models.load import LoadOptions, load_model

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "architectures" / "gpt-oss.npz"


@pytest.mark.parametrize("weights", ["quantized", "dense"])
def test_experts_in_mxfp4_compute_what_llama_cpp_does_with_their_numbers(tmp_path, weights):
    tiny = build("gpt-oss")
    for name in tiny.tensors:
        if name.endswith("_exps.weight"):
            tiny.quantize(name, "MXFP4")
    recorded = np.load(GOLDEN)
    path = tiny.write(tmp_path / "model.gguf")
    model = load_model(path, LoadOptions(weights=weights, compute_type="float32")).model
    found = np.array(model(mx.array(recorded["ids"])[None])[0])
    assert np.abs(found - recorded["logits"]).max() / recorded["logits"].std() < 5e-3
    experts = model.layers[0].mlp.experts
    if weights == "dense":
        assert type(experts.gate_proj) is SwitchLinear
    else:
        assert type(experts.gate_proj) is QuantizedSwitchLinear
        assert experts.gate_proj.mode == experts.down_proj.mode == "mxfp4"
