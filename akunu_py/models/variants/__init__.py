"""mlx-lm's classes with what GGUF files need and the classes lack; one file for each part changed.

    attention     sliding windows, clipped projections
    experts       the choice of experts and their weights
    feed_forward  activations
    output        how logits are made
    state_space   norms, precision and sizes in models with Mamba layers

A `ModelPlan` names a class as "variants.<name>", the name by which converted models also know it.
Each class says what it adds; a test fails without it.
"""

import importlib
import sys
from collections.abc import Mapping
from typing import Any

VARIANT_PREFIX = "variants."

_CLASSES: Mapping[str, tuple[str, str]] = {
    "arcee": ("feed_forward", "Arcee"),
    "bailing_moe": ("experts", "BailingMoe"),
    "deepseek2": ("experts", "DeepSeek2"),
    "deepseek32": ("experts", "DeepSeek32"),
    "ernie4_5_moe": ("experts", "ErnieMoe"),
    "falcon_h1": ("state_space", "FalconH1"),
    "gemma": ("feed_forward", "Gemma"),
    "gemma2": ("attention", "Gemma2"),
    "gemma3": ("output", "Gemma3"),
    "gpt2": ("output", "GPT2"),
    "granite_hybrid": ("state_space", "GraniteHybrid"),
    "hunyuan_moe": ("experts", "HunyuanMoe"),
    "jamba": ("state_space", "Jamba"),
    "llama_experts": ("experts", "LlamaExperts"),
    "mamba": ("state_space", "Mamba"),
    "mamba2": ("state_space", "Mamba2"),
    "minicpm3": ("output", "MiniCPM3"),
    "muse_glimmer": ("attention", "MuseGlimmer"),
    "nemotron_h": ("state_space", "NemotronH"),
    "olmo": ("attention", "Olmo"),
    "phi3": ("attention", "Phi3"),
    "starcoder2": ("feed_forward", "StarCoder2"),
}
"""Name -> file and class.

The arguments of a class `X` are `XArgs` in the same file, or else those of mlx-lm's class.
"""


def variant(name: str) -> tuple[type[Any], type[Any]]:
    """Return the classes of a variant's model and of its arguments; KeyError for an unknown name.

    Only the file of the class is imported.
    """
    file, kind = _CLASSES[name]
    module = importlib.import_module(f"{__name__}.{file}")
    model = getattr(module, kind)
    of_mlx_lm = sys.modules[model.__base__.__module__].ModelArgs
    return model, getattr(module, f"{kind}Args", of_mlx_lm)
