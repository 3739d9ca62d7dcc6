"""Tiny models in programs that make embeddings. Written to tests/golden/embeddings:

    NAME.npz  vectors   float32 [texts, width]: the embedding of each of TEXTS, of the length 1
              tokens    int32 [texts]: how many tokens each has, from llama.cpp alone
              digest    of the model's metadata and weights, for llama.cpp alone
              version   of the package

The models of tests/tiny_architectures/embeddings.py run in llama.cpp, those of tests/embedding_folders.py
(folder-POOLING, and folder-query with the prompt of that name) in sentence-transformers, over transformers, which is
no dependency: install it beside the others. Tokens are these programs' own, with what they add to texts. Weights and
the KV cache are in float32.
"""

import tempfile
from collections.abc import Sequence
from importlib.metadata import version as package_version
from pathlib import Path

import numpy as np
from tiny_architectures.embeddings import EMBEDDERS, TEXTS, build_embedder

from references import llama_cpp

NAMES = (*sorted(EMBEDDERS), "folder-last", "folder-mean", "folder-query")
GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "embeddings"


def results(path: Path) -> dict[str, np.ndarray]:
    """Return llama.cpp's embeddings of the texts."""
    import xllamacpp

    options = xllamacpp.CommonParams()
    options.model.path, options.embedding = str(path), True
    options.n_ctx = options.n_batch = options.n_ubatch = 256
    options.n_parallel, options.n_gpu_layers, options.warmup = 1, 0, False
    options.cache_type_k = options.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    options.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(options)
    found = [server.handle_embeddings({"input": text, "model": "tiny"}) for text in TEXTS]
    return {
        "vectors": np.array([one["data"][0]["embedding"] for one in found], np.float32),
        "tokens": np.array([one["usage"]["prompt_tokens"] for one in found], np.int32),
    }


def folder_results(name: str, path: Path) -> dict[str, np.ndarray]:
    """Return sentence-transformers' embeddings of the texts."""
    from embedding_folders import write_embedder
    from sentence_transformers import SentenceTransformer

    mode = "mean_tokens" if name == "folder-mean" else "lasttoken"
    model = SentenceTransformer(str(write_embedder(path, mode)), device="cpu")
    prompt = "query" if name == "folder-query" else None
    return {"vectors": model.encode(list(TEXTS), prompt_name=prompt, batch_size=1)}


def record(names: Sequence[str]) -> None:
    """Record these, or all."""
    GOLDEN.mkdir(exist_ok=True)
    for name in names or NAMES:
        if name.startswith("folder-"):
            with tempfile.TemporaryDirectory() as folder:
                found = folder_results(name, Path(folder) / "model")
            version = f"sentence-transformers {package_version('sentence-transformers')}"
            np.savez_compressed(GOLDEN / f"{name}.npz", version=version, **found)
            print(f"  {name}")
            continue
        model = build_embedder(name)
        with tempfile.TemporaryDirectory() as folder:
            found = results(model.write(Path(folder) / f"{name}.gguf"))
        version = f"xllamacpp {llama_cpp.VERSION}"
        np.savez_compressed(GOLDEN / f"{name}.npz", digest=model.digest(), version=version, **found)
        print(f"  {name}: {found['tokens'].tolist()} tokens")
