"""Heads that guess several tokens from one state, each place by a layer of its own.

From the target's state of a row, after the last norm, the target's output head tells the next
token, and place k = 1, 2, ... the k-th token behind it. No place knows what the others guess.

- Blockwise parallel decoding (Stern et al. 2018, arXiv:1811.03115, section 4): a place adds a
  feed-forward layer of the state to it, and the target's output head makes the logits.
- Medusa (Cai et al. 2024, arXiv:2401.10774, section 2.1): a place adds SiLU(W x + b), once or
  several times, and has an output head of its own.

Medusa's file, `medusa_lm_head.safetensors`, has H.L.linear for residual layer L of place H, and
behind the last one H.L for the place's output head. Heads of blockwise parallel decoding were never
published: akunu's own layout is blockwise.H.up and blockwise.H.down. What a head is follows from
its tensors, so no config is read.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn

from akunu_py.models.heads.families import check_between_layers, decoder_of, shared_layers
from akunu_py.models.heads.head import BlockHead, DraftOutput, SharedLayers, WalkStep, spread
from akunu_py.models.heads.stored_weights import OFFSETS, StoredHead
from akunu_py.models.library_errors import from_library


class ParallelHead(BlockHead):
    """A head with one layer for each place; it needs no cache, since the last state is enough."""

    def __init__(
        self,
        shared: SharedLayers,
        width: int,
        places: Sequence[nn.Module],
        outputs: Sequence[nn.Module] = (),
    ) -> None:
        """Make a head of `places`, with an output head of each or with the target's."""
        super().__init__(shared, "normed", width)
        self.places = list(places)
        if outputs:
            self.lm_head = nn.Module()
            self.lm_head.places = list(outputs)

    @property
    def num_guessed(self) -> int:
        return len(self.places)

    def __call__(self, hidden: mx.array, tokens: mx.array, cache: list[Any]) -> mx.array:  # noqa: ARG002
        # Further known tokens take places; all others are guessed from the same state.
        known = tokens.shape[1] - hidden.shape[1]
        return mx.repeat(hidden[:, -1:], self.num_guessed - known, axis=1)

    def logits(self, hidden: mx.array) -> mx.array:
        """Return the logits [1, m, vocab] of the last m places, for their states [1, m, H]."""
        step = self.walk(hidden)
        return mx.concatenate([step(mx.array([0]))[0] for _ in range(hidden.shape[1])], axis=1)

    def walk(self, hidden: mx.array, count: int | None = None) -> WalkStep:  # noqa: ARG002 - none is computed unasked
        places = iter(range(self.num_guessed - hidden.shape[1], self.num_guessed))

        def step(_: mx.array) -> tuple[mx.array, None]:
            place = next(places)
            return self.logits_at(place, self.places[place](hidden[:, :1])), None

        return step

    def make_cache(self) -> list[Any]:
        return []

    def logits_at(self, place: int, states: mx.array) -> mx.array:
        """Return the logits [1, m, vocab] of a place for its states, [1, m, H]."""
        output = self.get("lm_head")
        rows = output.rows if isinstance(output, DraftOutput) else output
        if rows is None or "places" not in rows:
            return super().logits(states)
        found: mx.array = rows.places[place](states)
        if isinstance(output, DraftOutput):
            return spread(found, output.ids, output.vocabulary)
        return found


class MedusaPlace(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """What Medusa computes at a place, before its output head."""

    def __init__(self, width: int, num_layers: int) -> None:
        super().__init__()
        self.layers = [nn.Linear(width, width) for _ in range(num_layers)]

    def __call__(self, x: mx.array) -> mx.array:
        for layer in self.layers:
            x = x + nn.silu(layer(x))
        return x


class BlockwisePlace(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """What blockwise parallel decoding computes at a place."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def __call__(self, x: mx.array) -> mx.array:
        output: mx.array = x + self.down(nn.relu(self.up(x)))
        return output


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
