"""Tiny random models of embeddings; `scripts/record_references.py embeddings` runs them."""

from tiny_architectures.builder import TinyModel
from tiny_architectures.llama import head_norms, llama_model

MEAN, LAST = 1, 3
TEXTS = (
    "a", "The cat sat on the mat.", "def add(a, b):\n    return a + b\n", "naïve 漢字 🙂",
    "one two three " * 9, "",
)  # fmt: skip


def _qwen3(model: TinyModel) -> None:
    llama_model(model, tied=True, rope_base=1000000.0, pooling_type=LAST)
    head_norms(model)
    model.metadata["tokenizer.ggml.add_eos_token"] = True


def _llama(model: TinyModel) -> None:
    llama_model(model, tied=True, rope__dimension_count=16, pooling_type=MEAN)


EMBEDDERS = {"qwen3-last": ("qwen3", _qwen3), "llama-mean": ("llama", _llama)}
"""Name -> (architecture, builder)."""


def build_embedder(name: str) -> TinyModel:
    architecture, function = EMBEDDERS[name]
    model = TinyModel(architecture, seed=sum(name.encode()))
    function(model)
    return model
