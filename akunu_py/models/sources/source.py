"""What every kind of place that has a model can do."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from mlx import nn

from akunu_py.gguf.plan import ModelPlan
from akunu_py.models.library_errors import from_library
from akunu_py.models.load_steps import Steps
from akunu_py.models.loaded_model import LoadedModel, ModelFacts
from akunu_py.models.rank_split import Group, PlannedGroup
from akunu_py.models.weight_files import StoredTensor
from akunu_py.system.errors import ConfigError
from akunu_py.values.load_options import LoadOptions

DESCRIPTION = "akunu.json"
"""The file that marks a folder as a converted model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures(ModelFacts):
    """Facts about a model, and its sizes in memory once it is loaded."""

    dense: bool
    """Whether its weights will be dense rather than quantized."""

    weights_bytes: int
    """Size of its weights in memory."""

    number_bytes: int
    """Size of a number in unquantized caches."""


@dataclass(frozen=True, slots=True)
class EmptyModel:
    """A model without its weights: its class, and what is known of them."""

    model: nn.Module
    figures: ModelFigures
    planes: int = 1
    """The most codes for one weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """How a model is stored, in words, and its tensors."""

    kind: str
    tokenizer: str
    vocabulary: int
    chat_template: bool
    tensors: Sequence[StoredTensor]


class ModelSource(ABC):
    """A place that has a model. Methods raise ConfigError and ModelFormatError as `load_model`."""

    has_gguf_rows: ClassVar[bool] = False
    """Whether its rows are in the order of llama.cpp's converters, not of the model's authors."""

    def __init__(self, path: Path) -> None:
        """Take note of a path; nothing is read."""
        self.path = path

    @abstractmethod
    def open(
        self, options: LoadOptions, context: int | None, group: Group | None
    ) -> Steps[LoadedModel]:
        """Open the files and read the tokenizer; return the steps that load the model."""

    @abstractmethod
    def empty_model(self, options: LoadOptions, group: PlannedGroup | None) -> EmptyModel:
        """Return the model without its weights, which are not read.

        Figures are of the whole model; a rank's share may decide how weights are kept.
        """

    @abstractmethod
    def describe(self) -> StoredModel:
        """Return how a sound model is stored; weights are not read."""

    def gguf_plan(self, adapter: Path) -> tuple[ModelPlan, dict[str, tuple[int, ...]]]:
        """Return the plan and the shapes of tensors that an adapter in a GGUF file refers to."""
        raise ConfigError(
            f"the adapter {adapter} changes tensors of a GGUF file, and {self.path} is a folder; "
            "give the adapter in the form that it was trained in"
        )

    def errors(self) -> AbstractContextManager[None]:
        """Frame calls of the model's class; what files contradict becomes a ModelFormatError."""
        return nullcontext()


class FolderSource(ModelSource):
    """A folder with a model."""

    @property
    def file_bytes(self) -> int:
        """Return the bytes of its files with weights."""
        files = filter(Path.is_file, self.path.glob("*.safetensors"))
        return sum(file.stat().st_size for file in files)

    def errors(self) -> AbstractContextManager[None]:
        return from_library(self.path, "model")

    def refuse_gguf_options(self, options: LoadOptions) -> None:
        """Raise ConfigError for options that do not apply to a folder, whose forms are fixed."""
        for name in ("compute_type", "q6k", "pre_tokenizer"):
            if getattr(options, name) != getattr(LoadOptions(), name):
                raise ConfigError(
                    f"{name} is for GGUF files, and {self.path} is a folder; leave it out, or give "
                    "it when the file is converted"
                )


def place_kind(path: Path) -> Literal["gguf", "converted", "mlx"]:
    """Return the kind of a place; what is no folder is taken for a GGUF file, and not opened."""
    if not path.is_dir():
        return "gguf"
    return "converted" if (path / DESCRIPTION).is_file() else "mlx"


def source_of(path: Path) -> ModelSource:
    """Return the source of a path; nothing is read."""
    kind = place_kind(path)
    if kind == "mlx":
        # It imports transformers, which the others do without.
        from akunu_py.models.sources.mlx_folder import MLXFolderSource

        return MLXFolderSource(path)
    if kind == "converted":
        from akunu_py.models.sources.converted import ConvertedSource  # for a folder

        return ConvertedSource(path)
    from akunu_py.models.sources.gguf import GGUFSource

    return GGUFSource(path)
