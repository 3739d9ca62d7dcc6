"""The head of a loaded model: from its own file or folder, or from another place."""

from pathlib import Path
from typing import Literal

import mlx.core as mx
from mlx import nn

from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.cached_rows import Passes
from akunu_py.models.converted_plan import DESCRIPTION
from akunu_py.models.heads.assistant import sources_in
from akunu_py.models.heads.families import FAMILIES, Family, decoder_of, family_of
from akunu_py.models.heads.gguf_assistant import is_assistant, load_gguf_assistant
from akunu_py.models.heads.gguf_head import find_block, load_gguf_head
from akunu_py.models.heads.making import Head
from akunu_py.models.heads.stored_assistant import is_assistant_folder, load_stored_assistant
from akunu_py.models.heads.stored_dflash import find_dflash, load_dflash
from akunu_py.models.heads.stored_eagle import find_eagle, load_eagle
from akunu_py.models.heads.stored_head import find_head, load_stored
from akunu_py.models.load import LoadedModel, explained
from akunu_py.system.errors import ConfigError, UnsupportedArchitectureError

OWN = "own"
"""Asks for a model's own head, from `own_place`."""

_PACKAGE = Path(__file__).resolve().parents[2]
_SHIPPED = (_PACKAGE / "default_models", _PACKAGE.parent / "models")
"""Where the installed package, or a checkout, has the heads that it ships."""


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
    with explained(place):
        head = _load(loaded, place)
    if head is None and source is not None:
        raise ConfigError(
            f"{place} has no prediction head for this model; give a file or folder that has one"
        )
    return head


def own_place(model: Path) -> Path:
    """Return where a model has its own head: a side-car of a GGUF file, or the model itself.

    The side-car of NAME.gguf is NAME.head.safetensors, beside it or among those that akunu ships.
    A folder has its side-cars inside.
    """
    name = f"{model.stem}.head.safetensors"
    beside = (folder / name for folder in (model.parent, *_SHIPPED))
    found = (place for place in beside if model.suffix == ".gguf" and place.is_file())
    return next(found, model)


def head_place(model: Path, heads: str | Path) -> Path:
    """Return where the head lies that a user asked for; "own" stands for `own_place`.

    Raises ConfigError for an unknown home directory.
    """
    with explained(heads):
        own = str(heads) == OWN
        return own_place(model.expanduser()) if own else Path(heads).expanduser()


def kind_of(place: Path) -> Literal["gguf", "stored"] | None:
    """Return the format in which a file or folder may have a head, None where it has none."""
    if (place / DESCRIPTION).is_file() or not place.exists():
        # A converted folder was made from a GGUF file, without the head.
        return None
    return "stored" if place.is_dir() or place.suffix == ".safetensors" else "gguf"


def required_family(model: nn.Module, architecture: str) -> Family:
    """Return the family of a model; raise UnsupportedArchitectureError if akunu runs no head of it.

    `architecture` names it in the message.
    """
    family = family_of(model)
    if family is None:
        raise UnsupportedArchitectureError(
            f"akunu cannot run the prediction head of a {architecture} model; "
            f"it runs those of {', '.join(FAMILIES)}: leave the head out"
        )
    return family


def check_gemma(model: nn.Module, architecture: str, place: Path) -> None:
    """Check that a model can have the assistant at a place; `architecture` names it in a message.

    Raises UnsupportedArchitectureError for other families than Gemma 4.
    """
    if not sources_in(model):
        raise UnsupportedArchitectureError(
            f"{place} is an assistant for Gemma 4, and the model is a {architecture} model; use a "
            "head of this model"
        )


def _load(loaded: LoadedModel, place: Path) -> Head | None:
    kind = kind_of(place)
    if kind == "stored":
        return _load_stored(loaded, place)
    return _load_gguf(loaded, place) if kind == "gguf" else None


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


def _load_gguf(loaded: LoadedModel, path: Path) -> Head | None:
    with GGUFFile.open(path) as file:
        forms = {
            "dense": loaded.description.weights == "dense",
            "fitted": loaded.description.weights == "fitted",
        }
        if is_assistant(file):
            _check_one_machine(loaded)
            check_gemma(loaded.model, loaded.description.architecture, path)
            return load_gguf_assistant(file, loaded.model, _kind(loaded), **forms)
        block = find_block(file)
        if block is None:
            return None
        return load_gguf_head(file, block, loaded.model, _family(loaded), _kind(loaded), **forms)


def _load_stored(loaded: LoadedModel, place: Path) -> Head | None:
    # First: their configs need not be those of models, and their names are those of other heads.
    for find, load in ((find_eagle, load_eagle), (find_dflash, load_dflash)):
        found = find(place)
        if found is not None:
            _check_one_machine(loaded)
            kind, dense = _form(loaded)
            return load(found, loaded.model, loaded.description.architecture, kind, dense=dense)
    folder = place if place.is_dir() else place.parent
    if is_assistant_folder(folder):
        _check_one_machine(loaded)
        check_gemma(loaded.model, loaded.description.architecture, place)
        kind, dense = _form(loaded)
        return load_stored_assistant(folder, loaded.model, kind, dense=dense)
    stored = find_head(place, len(loaded.model.layers))
    if stored is None:
        return None
    family = _family(loaded)
    kind, dense = _form(loaded)
    return load_stored(stored, loaded.model, family, kind, dense=dense)


def _form(loaded: LoadedModel) -> tuple[mx.Dtype, bool]:
    """Return the type of a stored head, and whether its quantized weights are expanded."""
    kind = _kind(loaded)
    # Elsewhere than on the CPU backend, quantized weights are the fast ones.
    return kind, loaded.description.weights == "dense" and kind == mx.float32


def _check_one_machine(loaded: LoadedModel) -> None:
    if loaded.make_passes is not Passes:
        raise ConfigError(
            "prediction heads work on one machine only; leave them out, or run the model on one"
        )


def _family(loaded: LoadedModel) -> Family:
    _check_one_machine(loaded)
    return required_family(loaded.model, loaded.description.architecture)


def _kind(loaded: LoadedModel) -> mx.Dtype:
    """Return the type of the target's activations."""
    _, decoder = decoder_of(loaded.model)
    # Nothing is computed: only the type is asked for.
    kind: mx.Dtype = decoder.embed_tokens(mx.zeros((1, 1), dtype=mx.int32)).dtype
    return kind
