"""Whole models in every GGML type: against llama.cpp, and quantized weights against expanded ones."""

import gguf
import numpy as np
import pytest
from gguf_files import add_vocabulary, raw_type
from quant_blocks import QUANTIZED, random_blocks
from quantized_references import (
    matrices,
    narrow_matrices,
    recorded,
    recorded_models,
    write_llama,
)

from akunu_py import Engine

WIDTH, FEED_FORWARD, LAYERS = 256, 512, 2
IDS = [5, 9, 80, 81, 82, 5, 9, 80, 33, 34, 120, 7]


def write_model(path, kind):
    """A llama whose matrices are random blocks, scaled to what a layer needs by d alone."""
    writer = gguf.GGUFWriter(str(path), "llama")
    rows = add_vocabulary(writer, "bpe", chat_template=None)
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(64)
    shapes = {"token_embd": (rows, WIDTH), "output": (rows, WIDTH)}
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        shapes |= {
            block + "attn_q": (WIDTH, WIDTH), block + "attn_k": (WIDTH // 2, WIDTH),
            block + "attn_v": (WIDTH // 2, WIDTH), block + "attn_output": (WIDTH, WIDTH),
            block + "ffn_gate": (FEED_FORWARD, WIDTH), block + "ffn_up": (FEED_FORWARD, WIDTH),
            block + "ffn_down": (WIDTH, FEED_FORWARD),
        }  # fmt: skip
        for norm in ("attn_norm", "ffn_norm"):
            # Small, since random blocks make matrices of any size.
            writer.add_tensor(f"{block}{norm}.weight", np.full(WIDTH, 0.05, np.float32))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for seed, (name, (out, into)) in enumerate(shapes.items()):
        _, raw = random_blocks(kind, out, into, seed)
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=raw_type(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def logits(path, **options):
    with Engine.load(path, compute_type="float32", **options) as engine:
        return engine.logits(IDS)


@pytest.mark.parametrize("kind", QUANTIZED)
def test_logits_of_quantized_and_expanded_weights_agree(tmp_path, kind):
    path = write_model(tmp_path / "m.gguf", kind)
    dense = logits(path, weights="dense")
    quantized = logits(path, weights="quantized", exact_weights=True)
    assert np.isfinite(dense).all()
    assert dense.std() > 1e-3
    assert np.abs(quantized - dense).max() < 1e-5 * np.abs(dense).max()


# The largest difference was 5e-5 where logits have a deviation of 4.
TOLERANCE = 2e-4


@pytest.mark.parametrize("weights", ["dense", "quantized"])
@pytest.mark.parametrize("name", recorded_models())
def test_ggmls_blocks_give_llama_cpps_logits_and_text(tmp_path, name, weights):
    path = write_llama(tmp_path / "m.gguf", matrices(name) | narrow_matrices())
    golden = recorded(name)
    ids, greedy = golden["ids"].tolist(), golden["greedy"].tolist()
    options = {"weights": weights, "exact_weights": True, "compute_type": "float32"}
    with Engine.load(path, **options) as engine:
        found = engine.logits(ids)
        never = dict.fromkeys(engine.tokenizer.end_ids, -1e6)
        reply = engine.generate(ids, max_tokens=len(greedy), logit_bias=never)
    difference = np.abs(found - golden["logits"]).max()
    assert difference < TOLERANCE
    # So rounding decides nothing: no two logits that a token was chosen by are as close.
    assert golden["margins"].min() > 2 * TOLERANCE
    assert list(reply.token_ids) == greedy


def test_every_type_was_recorded():
    assert set(recorded_models()) == {*QUANTIZED, "F16", "BF16", "Q4_K_M"}
