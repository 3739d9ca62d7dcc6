"""The head of a loaded model: from its own file or folder, or from another place."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import mlx.core as mx

from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.cached_rows import Passes
from akunu_py.models.folder_settings import read_folder_config
from akunu_py.models.gguf_model import fill_model
from akunu_py.models.heads.families import decoder_of, drop_copies, set_draft_vocabulary
from akunu_py.models.heads.gguf_head import find_block
from akunu_py.models.heads.kinds import Head, find_planned, find_stored
from akunu_py.models.heads.stored_head import find_head
from akunu_py.models.heads.stored_weights import OFFSETS, fill_head, read_ids
from akunu_py.models.library_errors import explained, from_library
from akunu_py.models.load_steps import finish
from akunu_py.models.loaded_model import LoadedModel
from akunu_py.models.sources import source_of
from akunu_py.models.weights import Float16OverflowError, WeightReader
from akunu_py.system.errors import ConfigError, ModelFormatError

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
    if not place.exists():
        return None
    return "stored" if place.suffix == ".safetensors" else source_of(place).heads


def has_own_head(model: Path) -> bool:
    """Return whether a sound model seems to have a head of its own, by the names of tensors."""
    place = own_place(model)
    if place != model or kind_of(place) is None:
        return place != model
    if kind_of(place) == "gguf":
        with GGUFFile.open(place) as file:
            return find_block(file) is not None
    config = read_folder_config(place)
    # Of a model with images, the part that reads text has these arguments.
    layers = {**config, **(config.get("text_config") or {})}.get("num_hidden_layers")
    return find_head(place, layers if isinstance(layers, int) else 0) is not None


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


def _load(loaded: LoadedModel, place: Path) -> Head | None:
    kind = kind_of(place)
    if kind == "stored":
        return _load_stored(loaded, place)
    return _load_gguf(loaded, place) if kind == "gguf" else None


def _load_gguf(loaded: LoadedModel, path: Path) -> Head | None:
    weights = loaded.description.weights
    with GGUFFile.open(path) as file, of_gguf_head(file):
        found = find_planned(file, loaded.model, loaded.description.architecture)
        if found is None:
            return None
        _check_one_machine(loaded)
        kind, head, plan = found
        reader = WeightReader(file, _type_of(loaded), weights == "dense", weights == "fitted")
        finish(fill_model(head, plan, reader))
    if kind.shares:
        drop_copies(head, loaded.model)
    return head


@contextlib.contextmanager
def of_gguf_head(file: GGUFFile) -> Iterator[None]:
    """Name the file's head in errors of planning and filling it."""
    try:
        yield
    except Float16OverflowError as error:
        raise ConfigError(
            f"the prediction head in {file.path} has numbers in {error} that float16 cannot hold; "
            "choose another compute type for the model"
        ) from None
    except ModelFormatError as error:
        raise type(error)(
            f"the prediction head in {file.path} cannot be loaded: {error.message}"
        ) from None


def _load_stored(loaded: LoadedModel, place: Path) -> Head | None:
    found = find_stored(place, loaded.model)
    if found is None:
        return None
    _check_one_machine(loaded)
    kind, stored = found
    target = loaded.model
    head = kind.make(stored, target, loaded.description.architecture)
    with from_library(stored.place, "prediction head"):
        arrays = stored.read()
    offsets, ids = arrays.pop(OFFSETS, None), None
    if offsets is not None:
        vocabulary = decoder_of(target)[1].embed_tokens.weight.shape[0]
        ids = read_ids(offsets, stored.tensors[OFFSETS], vocabulary)
    number = _type_of(loaded)
    fill_head(
        head,
        kind.arrange(stored, arrays, target),
        stored.place,
        number,
        # Elsewhere than on the CPU backend, quantized weights are the fast ones.
        dense=loaded.description.weights == "dense" and number == mx.float32,
        is_cast=getattr(target, "cast_predicate", None),
    )
    if kind.shares:
        drop_copies(head, target)
    if ids is not None:
        set_draft_vocabulary(head, target, ids)
        mx.eval(head.parameters())
    return head


def _check_one_machine(loaded: LoadedModel) -> None:
    if loaded.make_passes is not Passes:
        raise ConfigError(
            "prediction heads work on one machine only; leave them out, or run the model on one"
        )


def _type_of(loaded: LoadedModel) -> mx.Dtype:
    """Return the type of the target's activations."""
    _, decoder = decoder_of(loaded.model)
    # Nothing is computed: only the type is asked for.
    kind: mx.Dtype = decoder.embed_tokens(mx.zeros((1, 1), dtype=mx.int32)).dtype
    return kind
