"""Medusa heads as they are published, and those of blockwise parallel decoding.

Medusa's file, `medusa_lm_head.safetensors`, has H.L.linear for residual layer L of place H, and
behind the last one H.L for the place's output head. Heads of blockwise parallel decoding were never
published: akunu's own layout is blockwise.H.up and blockwise.H.down. What a head is follows from
its tensors, so no config is read.
"""

import re
from pathlib import Path

from mlx import nn

from akunu_py.models.heads.families import check_between_layers, decoder_of, shared_layers
from akunu_py.models.heads.parallel import BlockwisePlace, MedusaPlace, ParallelHead
from akunu_py.models.heads.stored_weights import OFFSETS, StoredHead
from akunu_py.models.library_errors import from_library

_MEDUSA = re.compile(r"(?:medusa_heads?\.)?(\d+)\.(\d+)\.(linear\.)?(\w+)")
_BLOCKWISE = re.compile(r"blockwise\.(\d+\.(?:up|down)\.\w+)")
_LAYER = re.compile(r"layers\.\d+\.weight")
_PLACE = re.compile(r"places\.\d+")


def find_parallel(source: Path, _: nn.Module) -> StoredHead | None:
    """Return the head in a file or folder, None where there is none.

    Raises ModelFormatError for a damaged file.
    """
    stored = StoredHead.of(source, _own_name, "medusa_lm_head*.safetensors")
    return stored if stored.tensors.keys() - {OFFSETS} else None


def _own_name(name: str) -> str | None:
    if found := _MEDUSA.fullmatch(name):
        place, layer, linear, kind = found.groups()
        own = f"places.{place}"
        return f"{own}.layers.{layer}.{kind}" if linear else f"lm_head.{own}.{kind}"
    if found := _BLOCKWISE.fullmatch(name):
        return f"places.{found[1]}"
    return OFFSETS if name == OFFSETS else None


def make_parallel(stored: StoredHead, target: nn.Module, architecture: str) -> ParallelHead:
    """Return a head without weights.

    `architecture` names the target in messages. Raises UnsupportedArchitectureError for a target
    whose states are not read.
    """
    check_between_layers(target, architecture, stored.place, "a Medusa")
    _, decoder = decoder_of(target)
    vocabulary, width = decoder.embed_tokens.weight.shape[0], decoder.norm.weight.shape[0]
    count = len({found[0] for name in stored.tensors if (found := _PLACE.search(name))})
    first = {name.removeprefix("places.0.") for name in stored.tensors if "places.0." in name}
    outputs: list[nn.Module] = []
    with from_library(stored.place, "prediction head"):
        if "up.weight" in first:
            inner = stored.shape("places.0.up.weight")[0]
            places: list[nn.Module] = [BlockwisePlace(width, inner) for _ in range(count)]
        else:
            num_layers = sum(bool(_LAYER.fullmatch(name)) for name in first)
            places = [MedusaPlace(width, num_layers) for _ in range(count)]
            guessed = stored.num_guessed or vocabulary
            outputs = [nn.Linear(width, guessed, bias=False) for _ in range(count)]
        return ParallelHead(shared_layers(target, decoder), width, places, outputs)
