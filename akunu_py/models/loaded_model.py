"""A loaded model, and facts about it, such as the sampling that its makers recommend."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mlx import nn

from akunu_py.gguf.plan import ModelPlan
from akunu_py.model_store.names import friendly_name
from akunu_py.models.cached_rows import MakePasses, Passes
from akunu_py.models.folder_settings import read_json
from akunu_py.models.pooling import Pooling, pooling_of_gguf
from akunu_py.protocols import Tokenizer
from akunu_py.values.recommended import NO_RECOMMENDATION, Recommended, recommended

_FILE = "generation_config.json"
_SAMPLING = "general.sampling."

_OF_TRANSFORMERS = {
    name: name for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
}
_WINDOW, _PENALTY = f"{_SAMPLING}penalty_last_n", f"{_SAMPLING}penalty_repeat"
_OF_GGUF = {
    f"{_SAMPLING}temp": "temperature",
    f"{_SAMPLING}top_k": "top_k",
    f"{_SAMPLING}top_p": "top_p",
    f"{_SAMPLING}min_p": "min_p",
    _WINDOW: "penalty_window",
    _PENALTY: "repetition_penalty",
}


def recommended_in_folder(folder: Path) -> Recommended:
    """Return the settings of generation_config.json; raises ModelFormatError if it is not JSON."""
    path = folder / _FILE
    entries = read_json(path) if os.path.lexists(path) else {}
    return recommended(entries, _OF_TRANSFORMERS, _FILE)


def recommended_in_gguf(metadata: Mapping[str, object]) -> Recommended:
    """Return the settings that a GGUF file's metadata recommend."""
    if metadata.get(_WINDOW) == 0:  # as llama.cpp turns the penalty off
        metadata = {name: metadata[name] for name in metadata.keys() - {_WINDOW, _PENALTY}}
    return recommended(metadata, _OF_GGUF, f"{_SAMPLING}* in the GGUF file")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What a model's files say of it."""

    architecture: str
    """`general.architecture`, or `model_type` of an MLX folder."""

    parameters: int
    context: int
    """Tokens it was trained for."""

    file_bytes: int
    recommended: Recommended = NO_RECOMMENDATION
    """How its makers say that replies should be sampled."""

    pooling: Pooling | None = None
    """How it makes embeddings, for which it was made; None for a model of replies."""


def facts_in_gguf(
    plan: ModelPlan, metadata: Mapping[str, object], parameters: int, file_bytes: int
) -> dict[str, Any]:
    """Return the fields of `ModelFacts` for a model with the plan and metadata of a GGUF file."""
    # Most models of replies have no such key.
    pools = f"{plan.architecture}.pooling_type" in metadata
    return {
        "architecture": plan.architecture,
        "parameters": parameters,
        "context": plan.context_length,
        "file_bytes": file_bytes,
        "recommended": recommended_in_gguf(metadata),
        "pooling": pooling_of_gguf(metadata) if pools else None,
    }


@dataclass(frozen=True, slots=True)
class ModelDescription(ModelFacts):
    """Facts about a loaded model."""

    path: Path
    name: str
    """What people call it, by its file, folder or repository."""

    weights: Literal["quantized", "dense"]
    """How they are kept."""

    exact: bool = True
    """Whether they are the file's: `q6k` may say that Q6_K is quantized anew."""

    adapter: str = ""
    """What was applied to the weights, in words; "" for nothing."""

    products: tuple[tuple[str, str], ...] = ()
    """On Metal, who computes few rows of each shape, and the costs, in words."""

    @classmethod
    def of(cls, path: Path, *, dense: bool, **facts: Any) -> "ModelDescription":
        """Return the description of a model at a path; `facts` are the other fields."""
        weights: Literal["quantized", "dense"] = "dense" if dense else "quantized"
        return cls(path=path, name=friendly_name(path), weights=weights, **facts)

    @property
    def weights_text(self) -> str:
        """Return how weights are kept, in words."""
        quantized = f"{'exact ' * self.exact}quantized weights{', Q6_K anew' * (not self.exact)}"
        text = "dense weights" if self.weights == "dense" else quantized
        return f"{text}, with the adapter {self.adapter}" if self.adapter else text


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with its tokenizer."""

    model: nn.Module
    """The model, or this rank's part of it."""

    tokenizer: Tokenizer
    description: ModelDescription
    make_passes: MakePasses = Passes
    """How passes are run; on several ranks, all of them run each."""
