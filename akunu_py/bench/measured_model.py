"""The model that was measured."""

from pathlib import Path
from typing import TYPE_CHECKING, Self

from akunu_py.bench.rows import Count, Row
from akunu_py.model_store.known_models import default_model_path
from akunu_py.system.errors import ConfigError

if TYPE_CHECKING:
    # Reading a result needs no MLX.
    from akunu_py.models.load import ModelDescription


class Model(Row, frozen=True):
    """The model that was measured; `context` in tokens, `path` as it was loaded.

    The models that ship with akunu are named by their files alone, so that a result does not
    contain the path of the installation. `sha256` is a hash of the files; "" if nobody asked for
    it, since hashing takes about a second for each gigabyte.
    """

    path: str
    name: str
    architecture: str
    parameters: Count
    weights: str
    context: Count
    sha256: str = ""

    @classmethod
    def of(cls, description: "ModelDescription", context: int | None = None) -> Self:
        """Return the facts about a model; `context`, in tokens, defaults to its own."""
        path = description.path
        return cls(
            path=path.name if _is_shipped(path) else str(path),
            name=description.name,
            architecture=description.architecture,
            parameters=description.parameters,
            weights=description.weights,
            context=description.context if context is None else context,
        )


def _is_shipped(path: Path) -> bool:
    try:
        return path.resolve().parent == default_model_path().resolve().parent
    except ConfigError:
        return False
