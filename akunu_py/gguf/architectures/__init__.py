"""Metadata and tensor names to a `ModelPlan`, by the reader of the architecture; a file a family.

Which class rotates which rows together, which norms are stored plus one and where a family has a
hidden constant was taken from llama.cpp's converters and graphs and mlx-lm's classes, and is tested
against llama.cpp's logits (`tests/models/test_architectures.py`).

To add an architecture, write its reader in the file of its family and name it in `_FAMILIES`:
docs/adding-a-model.md.
"""

import importlib
from collections.abc import Mapping

from akunu_py.gguf.header import MetadataValue
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.parts.decoder import Decoder, Reader
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo
from akunu_py.system.errors import ModelFormatError, UnsupportedArchitectureError

ASSISTANT, EAGLE, DFLASH = "gemma4-assistant", "eagle3", "dflash"
HEADS = {
    ASSISTANT: "an assistant for Gemma 4",
    EAGLE: "an EAGLE-3 head",
    DFLASH: "a DFlash or DSpark head",
}
"""Files of small models that only draft for another -> what they are."""

_FAMILIES = {
    "bailing": "bailingmoe bailingmoe2 bailingmoe3",
    "deepseek": "deepseek deepseek2 deepseek32 glm-dsa mistral4",
    "dense": (
        "apertus arcee cohere2 command-r exaone exaone4 mistral3 muse-glimmer nanbeige phi2 phi3 "
        "seed_oss smollm3 spark2_5 stablelm starcoder2 talkie"
    ),
    "ernie": "ernie4_5 ernie4_5-moe",
    "gemma": "gemma gemma2 gemma3",
    "gemma3n": "gemma3n",
    "gemma4": "gemma4",
    "glm": "glm4 glm4moe",
    "gpt": "gpt-oss gpt2 gptneox",
    "granite": "granite granitehybrid granitemoe",
    "hunyuan": "hunyuan-dense hunyuan-moe",
    "hybrids": "falcon-h1 jamba kimi-k3 kimi-linear",
    "lfm2": "lfm2 lfm2moe",
    "llama": "internlm2 llama llama4",
    "mamba": "mamba mamba2",
    "minicpm": "minicpm minicpm3",
    "mixtures": "afmoe dots1 exaone-moe mellum mimo2 minimax-m2 minimax-m3",
    "nemotron": "nemotron nemotron_h nemotron_h_moe",
    "olmo": "olmo olmo2 olmoe",
    "qwen": "qwen2 qwen2moe qwen2vl qwen3 qwen35 qwen35moe qwen3moe qwen3next qwen3vl qwen3vlmoe",
    "step": "laguna step35",
}
"""Module -> the architectures of its family, whose readers are the functions of these names."""

_MODULES = {name: module for module, names in _FAMILIES.items() for name in names.split()}

_LLAMA_CPP = "llama.cpp runs it"
_ELSEWHERE = {
    **dict.fromkeys(("cohere2moe", "glm5-next", "hy_v4", "qwen4exp"), _LLAMA_CPP),
    **dict.fromkeys(("plamo2", "plamo3"), f"{_LLAMA_CPP}, and its vocabulary"),
}
"""Architectures without a reader -> what to run; there is no class for them, or no tokenizer."""


def read_plan(
    metadata: Mapping[str, MetadataValue], tensors: Mapping[str, TensorInfo]
) -> ModelPlan:
    """Return the plan of a model, from `GGUFFile.metadata` and `GGUFFile.tensors`.

    Raises UnsupportedArchitectureError, naming the unsupported property, for a valid file of a
    model that akunu cannot run, and ModelFormatError, naming key or tensor, for a damaged one.
    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelFormatError(
            "the metadata has no general.architecture: this is not a language model's file"
        )
    reader = find_reader(architecture)
    if architecture in HEADS:
        raise UnsupportedArchitectureError(
            f"this is {HEADS[architecture]}, which cannot run alone; load the model that it is "
            "made for, and give this file as its head (--heads)"
        )
    if reader is None and is_encoder(architecture):
        raise encoder_error(architecture)
    if reader is None:
        raise UnsupportedArchitectureError(
            f"the model is of the architecture {architecture[:80]!r}, which akunu does not read "
            f"from GGUF; {_ELSEWHERE.get(architecture, 'llama.cpp may run it')}. akunu reads "
            f"{', '.join(supported_architectures())}"
        )
    keys = Keys(metadata, architecture)
    # Embedding models of any architecture have this key.
    if not keys.flag("attention.causal", True):
        raise encoder_error(f"a model with {architecture}.attention.causal = false")
    plan = reader(Decoder(keys, tensors))
    keys.check_unused()
    return plan


_ENCODERS = (
    "gemma-embedding", "llama-embed", "mpnet", "new", "t5", "t5encoder", "umt5",
)  # fmt: skip
"""Models whose tokens see later ones, by their names here and in config.json; "bert" is in others'
names."""


def is_encoder(name: str) -> bool:
    """Return whether an architecture, or a folder's model_type, is that of an encoder."""
    return "bert" in name or name in _ENCODERS


def encoder_error(name: str) -> UnsupportedArchitectureError:
    """Return the error for an encoder."""
    return UnsupportedArchitectureError(
        f"{name[:80]} is an encoder, whose tokens see later ones; akunu makes embeddings with "
        "causal models, such as qwen3-embedding:0.6b, and llama.cpp runs encoders"
    )


def find_reader(architecture: str) -> Reader | None:
    """Return the reader of an architecture, None for an unknown one."""
    if architecture not in _MODULES:
        return None
    family = importlib.import_module(f"{__name__}.{_MODULES[architecture]}")
    reader: Reader = getattr(family, architecture.replace("-", "_"))
    return reader


def supported_architectures() -> tuple[str, ...]:
    """Return the values of `general.architecture` that akunu can run, sorted."""
    return tuple(sorted(_MODULES))
