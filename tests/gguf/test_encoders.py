"""GGUF files that also have tensors for pictures and sounds, as Ollama stores such models."""

import logging

import mlx.core as mx
import numpy as np
from tiny_architectures.builder import build

from akunu_py.models.load import load_model
from akunu_py.models.requirements import requirements

IDS = mx.array([[3, 1, 4, 1, 5]])


def test_encoders_are_left_out_and_that_is_said_once(tmp_path, caplog):
    plain = build("gemma3")
    whole = build("gemma3")
    whole.key("vision.block_count", 1)
    shape = (8, 32)
    for name in ("v.blk.0.attn_q.weight", "mm.input_projection.weight", "a.conv1d.0.weight"):
        whole.tensors[name] = np.ones(shape, np.float32)
    text, both = plain.write(tmp_path / "text.gguf"), whole.write(tmp_path / "both.gguf")
    expected = load_model(text)
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        found = load_model(both)
    assert [record.getMessage() for record in caplog.records] == [
        "both.gguf: pictures and sounds are left out; akunu reads text"
    ]
    np.testing.assert_array_equal(np.array(found.model(IDS)), np.array(expected.model(IDS)))
    assert found.description.parameters == expected.description.parameters
    assert requirements(both).weights_bytes == requirements(text).weights_bytes
