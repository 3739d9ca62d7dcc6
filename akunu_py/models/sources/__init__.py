"""What models are loaded from: nobody else asks what kind of place a path is.

source      what every kind of place can do
gguf        a GGUF file
converted   a folder that akunu wrote of a GGUF file
mlx_folder  a folder as mlx-lm writes it
"""

from pathlib import Path

from akunu_py.models.sources.converted import DESCRIPTION, ConvertedSource
from akunu_py.models.sources.gguf import GGUFSource
from akunu_py.models.sources.source import EmptyModel, ModelFigures, ModelSource, StoredModel

__all__ = ["EmptyModel", "ModelFigures", "ModelSource", "StoredModel", "source_of"]


def source_of(path: Path) -> ModelSource:
    """Return the source of a path; what is no folder is taken for a GGUF file, and not opened."""
    if not path.is_dir():
        return GGUFSource(path)
    if (path / DESCRIPTION).is_file():
        return ConvertedSource(path)
    # It imports transformers, which the others do without.
    from akunu_py.models.sources.mlx_folder import MLXFolderSource

    return MLXFolderSource(path)
