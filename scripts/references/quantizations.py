"""Small llamas with random weights in each quantized type: blocks by ggml, results by llama.cpp.

tests/quantized_references.py has their shapes and writes them. Written to tests/golden/quantizations:
    common.npz      weights     float32 [ROWS, WIDTH]: the first rows before they were quantized
                    NAME        float16 [WIDTH, cols]: each narrow matrix
    TYPE.npz        blocks      uint8 [rows, row_bytes]: all wide matrices, one after another
                    weights     float32 [ROWS, WIDTH]: what ggml reads in the first rows
                    ids         int32 [PROMPT]
                    logits      float32 [PROMPT, vocab]: after each of them, by llama.cpp
                    greedy      int32 [GREEDY]: the likeliest tokens after ids, the end token left out
                    margins     float32 [GREEDY]: by how much in logits
                    version     of xllamacpp
F16, BF16 and Q4_K_M have no blocks: theirs are those of other files. llama.cpp gets the numbers that ggml reads in
the blocks, in float32, and keeps its KV cache in float32: so it rounds nothing to 8 or 16 bits.
"""

import tempfile
from pathlib import Path

import gguf
import numpy as np
import quantized_references as models
from quant_blocks import QUANTIZED

from references import llama_cpp

ROWS, PROMPT, GREEDY, DIFFERENT = 2, 12, 32, 6
NEAR_TIE = 2e-2
"""Above twice the largest tolerance, that of kernels for AVX2."""
NAMES = (*QUANTIZED, *models.CAST, "Q4_K_M")


def random_weights() -> tuple[np.ndarray, np.ndarray]:
    """Weights of the wide matrices, float32 [rows, WIDTH], and how much each column matters."""
    random = np.random.default_rng(17)
    rows = sum(models.WIDE.values())
    weights = random.normal(0, models.WIDTH**-0.5, (rows, models.WIDTH))
    weights[: len(models.TOKENS)] *= 4  # the embedding, which is the head too
    importance = random.gamma(2, 1, models.WIDTH)
    return weights.astype(np.float32), importance.astype(np.float32)


def narrow_weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(18)
    return {
        name: random.normal(0, 4 * cols**-0.5, (models.WIDTH, cols)).astype(np.float16)
        for name, cols in models.NARROW.items()
    }


def results(name: str) -> dict[str, np.ndarray]:
    """Ids, logits and reply of the first prompt whose reply has DIFFERENT tokens and no near-tie."""
    tensors = {}
    for key, (kind, array) in (models.matrices(name) | models.narrow_matrices()).items():
        if kind in models.CAST:
            values = gguf.quants.dequantize(array, gguf.GGMLQuantizationType[kind])
        else:
            values = llama_cpp.dequantize(kind, array)
        tensors[key] = ("F32", values)
    with tempfile.TemporaryDirectory() as folder:
        model = llama_cpp.Model(models.write_llama(Path(folder) / "float32.gguf", tensors))
        ends = model.end_ids()
        with model.context() as context:
            for seed in range(100):
                ids = np.random.default_rng(seed).integers(0, len(models.TOKENS), PROMPT)
                context.clear()
                logits = context.feed(ids.tolist())
                chosen = context.greedy(logits[-1], GREEDY, ends)
                chosen[:, ends] = -np.inf
                best = np.sort(chosen, axis=1)
                margins = best[:, -1] - best[:, -2]
                greedy = chosen.argmax(axis=1).astype(np.int32)
                if margins.min() > NEAR_TIE and len(set(greedy.tolist())) >= DIFFERENT:
                    break
            else:
                raise RuntimeError(f"{name}: no prompt of a hundred has such a reply")
        model.close()
    return {"ids": ids.astype(np.int32), "logits": logits, "margins": margins, "greedy": greedy}


def record(names: list[str]) -> None:
    models.GOLDEN.mkdir(exist_ok=True)
    weights, importance = random_weights()
    np.savez_compressed(models.GOLDEN / "common.npz", weights=weights[:ROWS], **narrow_weights())
    for name in names or NAMES:
        path = models.GOLDEN / f"{name}.npz"
        arrays = {"version": np.array(llama_cpp.VERSION)}
        if name in QUANTIZED:
            blocks = llama_cpp.quantize(name, weights, importance)
            arrays |= {"blocks": blocks, "weights": llama_cpp.dequantize(name, blocks[:ROWS])}
            np.savez_compressed(path, **arrays)  # for `matrices`
            models.recorded.cache_clear()
        arrays |= results(name)
        np.savez_compressed(path, **arrays)
        different = len(set(arrays["greedy"].tolist()))
        print(
            f"  {name}: std {arrays['logits'].std():.2f}, {different} different tokens of {GREEDY}"
        )
