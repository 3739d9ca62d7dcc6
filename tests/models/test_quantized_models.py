"""Whole models in every GGML type: quantized weights compute what the expanded ones do.

And the recorded files of llama.cpp in the types of real models.
"""

import gguf
import numpy as np
import pytest
from gguf_files import add_vocabulary
from quant_blocks import QUANTIZED, random_blocks

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
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=gguf_type(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_type(kind):
    try:
        return gguf.GGMLQuantizationType[kind]
    except KeyError:
        pytest.skip(f"the gguf package cannot write {kind}")


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


# llama.cpp rounds activations to 8 bits beside quantized weights: its distance from exact
# arithmetic, root mean square over the logits' deviation, is the tolerance.
RECORDED = {
    "rand256-f32": 5e-4,
    "rand256-IQ4_NL": 2e-2,
    "rand256-Q2_K": 3e-2,
    "rand256-Q4_K": 3e-2,
    "rand256-Q4_K_M": 3e-2,
    "rand256-Q5_K": 3e-2,
    "rand256-Q6_K": 3e-2,
    "aidreams260K-f32": 5e-4,
    "aidreams260K-q8_0": 1e-2,
    "aidreams260K-q4_0": 1e-2,
}


@pytest.mark.parametrize("weights", ["dense", "quantized"])
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_files_give_llama_cpps_logits_and_text(shared_models, name, weights):
    path = shared_models / f"{name}.gguf"
    ids = np.load(shared_models / "ids.npy").tolist()
    expected = np.load(f"{path}.logits.npy")
    greedy = np.load(f"{path}.greedy.npy").tolist()
    with Engine.load(path, weights=weights, exact_weights=True) as engine:
        found, along = engine.logits(ids), engine.logits(greedy)[:-1]
    difference = found - expected
    assert np.sqrt((difference**2).mean()) / expected.std() < RECORDED[name]
    # Where two tokens are nearly tied for llama.cpp, either may win.
    largest = np.abs(difference).max()
    chosen = along[np.arange(len(along)), greedy[1:]]
    assert (along.max(axis=1) - chosen <= 2 * largest).all()
    assert (along.argmax(axis=1) == greedy[1:]).mean() > 0.9
