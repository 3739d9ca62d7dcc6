"""What models are loaded from: nobody else asks what kind of place a path is.

source      what every kind of place can do
gguf        a GGUF file
converted   a folder that akunu wrote of a GGUF file
mlx_folder  a folder as mlx-lm writes it
"""

from pathlib import Path
from typing import Literal

from akunu_py.models.sources.gguf import GGUFSource
from akunu_py.models.sources.source import (
    DESCRIPTION,
    EmptyModel,
    ModelFigures,
    ModelSource,
    StoredModel,
)

__all__ = ["EmptyModel", "ModelFigures", "ModelSource", "StoredModel", "place_kind", "source_of"]


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
    return GGUFSource(path)
