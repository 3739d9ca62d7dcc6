"""The tiny models of tests/tiny_architectures in llama.cpp. Written to tests/golden/architectures:

    NAME.npz  ids       int32 [PROMPT]: the prompt
              logits    float32 [PROMPT, vocab]: after each of them
              greedy    int32 [GREEDY]: the likeliest tokens after the first GREEDY_PROMPT ids
              digest    of the model's metadata and weights
              version   of the package with llama.cpp

Weights are float32 but where a tiny model says otherwise; the KV cache is in float32.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tiny_architectures import BUILDERS
from tiny_architectures.builder import VOCABULARY_SIZE, build

from references import llama_cpp

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "architectures"
PROMPT, GREEDY_PROMPT, GREEDY = 24, 8, 64


CHOOSING = {"minimax-m3"}
"""Models whose blocks of rows llama.cpp chooses in flash attention alone, where keys are float16."""


def results(path: Path, ids: list[int], *, flash: bool = False) -> dict[str, np.ndarray]:
    """Return llama.cpp's logits for ids and its greedy continuation of their beginning."""
    model = llama_cpp.Model(path)
    try:
        with model.context(flash=flash) as context:
            logits = context.feed(ids)
        # A fresh one: not every cache can be cleared.
        with model.context(flash=flash) as context:
            first = context.feed(ids[:GREEDY_PROMPT])[-1]
            greedy = context.greedy(first, GREEDY).argmax(axis=1)
    finally:
        model.close()
    if not np.isfinite(logits).all():
        raise RuntimeError("logits are not finite")
    return {"logits": logits, "greedy": greedy.astype(np.int32)}


def record(names: Sequence[str]) -> None:
    """Record these, or all; raises RuntimeError at the end where llama.cpp ran some of them not."""
    ids = np.random.default_rng(11).integers(0, VOCABULARY_SIZE - 6, PROMPT).astype(np.int32)
    failed = []
    for name in names or sorted(BUILDERS):
        model = build(name)
        with tempfile.TemporaryDirectory() as folder:
            try:
                path = model.write(Path(folder) / f"{name}.gguf")
                found = results(path, ids.tolist(), flash=name in CHOOSING)
            except RuntimeError as error:
                failed.append(f"{name}: {error}")
                continue
        version = f"xllamacpp {llama_cpp.VERSION}"
        np.savez_compressed(
            GOLDEN / f"{name}.npz", ids=ids, digest=model.digest(), version=version, **found
        )
        different = len(set(found["greedy"].tolist()))
        print(
            f"  {name}: std {found['logits'].std():.3f}, {different} different tokens of {GREEDY}"
        )
    if failed:
        raise RuntimeError("failed: " + "; ".join(failed))
