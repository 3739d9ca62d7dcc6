#!/usr/bin/env python3
"""Measure what the fitted forms of the IQ types cost a real model. Writes docs/gguf.md's table.

    python scripts/measure_weight_forms.py MODEL.gguf [--write] [--types IQ4_XS IQ2_S] [--chunks 12]

The matrices of all layers are quantized by ggml (`pip install --group references`), one type at a
time, weighted by the mean squares of their inputs over other text than is measured on; columns are
filled up with zeros where a type's blocks are longer than a row. Embeddings and output stay as the
file has them. Perplexity is that of the second part of short pieces of Python's own sources and of
its language reference. Each form, with float16 scales, is held against ggml's own dequantized
weights, token by token: intervals are 95 % bootstrap intervals over pieces.

Everything is computed with dense float32 weights. On Linux a preloaded OpenBLAS makes that many
times faster than MLX's own BLAS.
"""

import argparse
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_unflatten

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from marked_pages import write_between
from measure_quantization import describe, unpack
from quant_blocks import info_of
from references import llama_cpp

from akunu_py.bench.bootstrap import interval, session_weights
from akunu_py.gguf import QuantizedMatrix, dequantize, relayout
from akunu_py.gguf.quants.forms import FITTED, form_of
from akunu_py.models.load import LoadOptions, load_model
from akunu_py.protocols import Tokenizer

PAGE = ROOT / "docs" / "gguf.md"
BEGIN = "<!-- scripts/measure_weight_forms.py writes from here -->"
END = "<!-- to here, measure_weight_forms -->"
HEAD = (
    "| type | form in MLX | in memory | perplexity | change of its logarithm | divergence | same token |",
    "|---|---|--:|--:|--:|--:|--:|",
)
PIECE, SKIPPED = 192, 32
"""Tokens of a piece of text, and how many of its first are not measured."""

MODULES = ("argparse", "difflib", "configparser", "tarfile", "ast", "calendar", "ftplib", "heapq")
MODULES_FOR_IMPORTANCE = ("shlex", "queue", "csv", "cmd")

Weights = dict[str, np.ndarray]


def sources(modules: tuple[str, ...]) -> list[str]:
    library = Path(sysconfig.get_path("stdlib"))
    return [(library / f"{name}.py").read_text(encoding="utf-8") for name in modules]


def reference(part: int) -> str:
    """Every other topic of the language reference."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics)[part::2])


def pieces(tokenizer: Tokenizer, count: int) -> list[list[int]]:
    """Return so many pieces of text that no importance comes from, half of them code."""
    code = [tokenizer.encode(text) for text in sources(MODULES)]
    prose = tokenizer.encode(reference(1))
    starts = [divmod(index, len(code)) for index in range(count // 2)]
    found = [code[module][(turn + 1) * PIECE :][:PIECE] for turn, module in starts]
    step = len(prose) // (count - len(found))
    return found + [prose[turn * step :][:PIECE] for turn in range(count - len(found))]


def layer_matrices(model: nn.Module) -> dict[str, nn.Linear]:
    return {
        path: module
        for path, module in model.named_modules()
        if type(module) is nn.Linear and ".layers." in path
    }


class Watched(nn.Module):
    """A layer that adds up the mean squares of its inputs by column."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.squares = mx.zeros(inner.weight.shape[-1])

    def __call__(self, x: mx.array) -> mx.array:
        self.squares = self.squares + x.square().reshape(-1, x.shape[-1]).mean(axis=0)
        return self.inner(x)


def importances(model: nn.Module, tokenizer: Tokenizer) -> Weights:
    """Return how much each column of each matrix matters, float32 [cols]."""
    matrices = layer_matrices(model)
    watched = {path: Watched(layer) for path, layer in matrices.items()}
    model.update_modules(tree_unflatten([*watched.items()]))
    for text in (*sources(MODULES_FOR_IMPORTANCE), reference(0)[: 1 << 14]):
        model(mx.array([tokenizer.encode(text)[: 2 * PIECE]]))
        mx.eval([layer.squares for layer in watched.values()])
    model.update_modules(tree_unflatten([*matrices.items()]))
    return {path: np.array(layer.squares) for path, layer in watched.items()}


def filled(values: np.ndarray, block: int, value: float = 0) -> np.ndarray:
    """Return values with as many columns more as make up a whole block."""
    widths = [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % block)]
    return np.ascontiguousarray(np.pad(values, widths, constant_values=value))


def forms_of(kind: str, originals: Weights, importance: Weights) -> dict[str, Weights]:
    """Return the weights that ggml reads, and those of the exact and of the fitted form."""
    found: dict[str, Weights] = {"file": {}, "exact": {}, "fitted": {}}
    block = llama_cpp.TYPES[kind].block_elements
    for path, weights in originals.items():
        wide = filled(weights, block)
        raw = llama_cpp.quantize(kind, wide, filled(importance[path], block, 1))
        info = info_of(kind, *wide.shape)
        ways: dict[str, Callable[[], Any]] = {
            "file": lambda: dequantize(info, raw),  # noqa: B023 - called at once
            "exact": lambda: relayout(info, raw),  # noqa: B023
            "fitted": lambda: relayout(info, raw, fitted=True),  # noqa: B023
        }
        for name, way in ways.items():
            made = way()
            made = unpack(made) if isinstance(made, QuantizedMatrix) else made
            found[name][path] = made[:, : weights.shape[1]].astype(np.float32)
    return found


def log_probabilities(model: nn.Module, weights: Weights, texts: list[list[int]]) -> np.ndarray:
    """Return the logarithms of all tokens' probabilities, float32 [pieces, tokens, vocabulary]."""
    model.update(
        tree_unflatten([(f"{path}.weight", mx.array(value)) for path, value in weights.items()])
    )
    found = []
    for ids in texts:
        logits = model(mx.array([ids]))[0, SKIPPED - 1 : -1].astype(mx.float32)
        found.append(np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True)))
    return np.stack(found)


def losses(logs: np.ndarray, texts: list[list[int]]) -> np.ndarray:
    """Return the mean loss of each piece, float64 [pieces]."""
    ids = np.array(texts)[:, SKIPPED:, None]
    return -np.take_along_axis(logs, ids, axis=2).mean(axis=(1, 2), dtype=np.float64)


def against(logs: np.ndarray, own: np.ndarray, texts: list[list[int]]) -> str:
    """Return the last cells of a line: the probabilities of a form against those of the file."""
    loss = losses(logs, texts)
    change = loss - losses(own, texts)
    resampled = session_weights([str(index) for index in range(len(texts))], name="pieces")
    low, high = interval(resampled @ change / resampled.sum(axis=1))
    divergence = (np.exp(own) * (own - logs)).sum(axis=2, dtype=np.float64).mean()
    same = (own.argmax(axis=2) == logs.argmax(axis=2)).mean()
    return (
        f"{np.exp(loss.mean()):.4g} | {change.mean():+.4f} ({low:+.4f} to {high:+.4f}) "
        f"| {divergence:.2g} | {same:.1%} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--types", nargs="+", default=[], choices=FITTED, help="these alone")
    parser.add_argument("--chunks", type=int, default=12, help="pieces of text")
    parser.add_argument("--write", action="store_true", help=f"write into {PAGE.name}")
    options = parser.parse_args()
    try:
        llama_cpp.library()
    except RuntimeError as error:
        raise SystemExit(str(error)) from None
    loaded = load_model(options.model, LoadOptions(weights="dense", compute_type="float32"))
    model, texts = loaded.model, pieces(loaded.tokenizer, options.chunks)
    originals = {path: np.array(layer.weight) for path, layer in layer_matrices(model).items()}
    importance = importances(model, loaded.tokenizer)
    before = losses(log_probabilities(model, originals, texts), texts)
    lines = [*HEAD, f"| {loaded.description.name} | | | {np.exp(before.mean()):.4g} | | | |"]
    print(lines[-1], flush=True)
    for kind in options.types or FITTED:
        weights = forms_of(kind, originals, importance)
        own = log_probabilities(model, weights["file"], texts)
        for name in ("exact", "fitted"):
            form = form_of(kind, fitted=name == "fitted")
            logs = log_probabilities(model, weights[name], texts)
            cells = f"| {kind} | {name}: {describe(form)} | {form.bits_per_weight:g} "
            lines.append(f"{cells}| {against(logs, own, texts)}")
            print(lines[-1], flush=True)
    if options.write and not options.types:
        write_between(PAGE, BEGIN, END, "\n".join(lines))


if __name__ == "__main__":
    main()
