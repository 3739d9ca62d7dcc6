"""The head of a loaded model: from its own file or folder, or from another place."""

from pathlib import Path

from akunu_py.gguf.parts.decoder import head_block
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.cached_rows import Passes
from akunu_py.models.folder_settings import read_folder_config
from akunu_py.models.head_places import OWN, own_place
from akunu_py.models.heads.found import find_head, format_of
from akunu_py.models.heads.kinds import Head
from akunu_py.models.heads.stored_head import find_layer_head
from akunu_py.models.library_errors import explain_errors
from akunu_py.models.loaded_model import LoadedModel
from akunu_py.system.errors import ConfigError


def load_head(loaded: LoadedModel, source: Path | None) -> Head | None:
    """Return the head of a loaded model; None where `source` is None and the model has none.

    Arguments:
        loaded: the target. The head computes in its type, and has dense weights where the target
            has.
        source: a GGUF or safetensors file, or a folder, with the head. None stands for
            `own_place`.

    Raises ConfigError for a place without a head, and for a model on several machines;
    UnsupportedArchitectureError for a model whose head akunu cannot run; ModelFormatError, naming
    file and tensor, for a head that is incomplete, damaged or of another model.
    """
    place = (own_place(loaded.description.path) if source is None else source).expanduser()
    if source is not None and not place.exists():
        raise ConfigError(
            f"{place} does not exist; give a GGUF or safetensors file, or a folder, with a "
            "prediction head"
        )
    target, weights, head = loaded.model, loaded.description.weights, None
    with explain_errors(place), find_head(place, target, loaded.description.architecture) as found:
        if found is not None:
            if loaded.make_passes is not Passes:
                raise ConfigError(
                    "prediction heads work on one machine only; leave them out, or run the model "
                    "on one"
                )
            head = found.load(dense=weights == "dense")
    if head is None and source is not None:
        raise ConfigError(
            f"{place} has no prediction head for this model; give a file or folder that has one"
        )
    return head


def has_own_head(model: Path) -> bool:
    """Return whether a sound model seems to have a head of its own, by the names of tensors."""
    place = own_place(model)
    if place != model or format_of(place) is None:
        return place != model
    if format_of(place) == "gguf":
        with GGUFFile.open(place) as file:
            return head_block(file.tensors) is not None
    config = read_folder_config(place)
    # Of a model with images, the part that reads text has these arguments.
    layers = {**config, **(config.get("text_config") or {})}.get("num_hidden_layers")
    return find_layer_head(place, layers if isinstance(layers, int) else 0) is not None


def wanted_head(loaded: LoadedModel, heads: str | Path) -> Head:
    """Return the head that a user asked for: "own", or the path of a file or folder.

    Raises as `load_head`, and ConfigError for a model without a head of its own.
    """
    head = load_head(loaded, None if str(heads) == OWN else Path(heads))
    if head is None:
        raise ConfigError(
            f"{loaded.description.name} comes without a prediction head; name a file or folder "
            "that has one for this model in place of 'own', or draft without heads"
        )
    return head
