"""Heads whose places know nothing of each other, to be trained: Medusa's and blockwise decoding's.

Both begin as the model's own guess of the next token: a place adds nothing to the state.
"""

from typing import Literal

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from akunu_py.models.heads.families import decoder_of, shared_layers
from akunu_py.models.heads.parallel import BlockwisePlace, MedusaPlace, ParallelHead

ParallelKind = Literal["medusa", "blockwise"]


def initial_parallel(
    model: nn.Module, kind: ParallelKind, count: int, rows: mx.array
) -> ParallelHead:
    """Return a head of `count` places; `rows` [n, width] of the output head are those it guesses.

    A feed-forward layer is as wide inside as those of the model.
    """
    _, decoder = decoder_of(model)
    width, outputs = rows.shape[1], []
    if kind == "medusa":
        places: list[nn.Module] = [MedusaPlace(width, 1) for _ in range(count)]
        outputs = [nn.Linear(width, len(rows), bias=False) for _ in places]
        for output in outputs:
            output.weight = rows.astype(mx.float32) + 0
        last = [place.layers[-1] for place in places]
    else:
        inner = decoder.layers[0].mlp.up_proj.weight.shape[0]
        places = [BlockwisePlace(width, inner) for _ in range(count)]
        last = [place.down for place in places]
    for layer in last:
        layer.weight, layer.bias = mx.zeros_like(layer.weight), mx.zeros_like(layer.bias)
    return ParallelHead(shared_layers(model, decoder), width, places, outputs)


def stored_parallel(head: ParallelHead, ids: mx.array) -> dict[str, mx.array]:
    """Return the arrays of a head by their names in files; `ids` are the tokens it guesses."""
    arrays = {"d2t": ids - mx.arange(len(ids))}
    for number, place in enumerate(head.places):
        for name, array in tree_flatten(place.parameters()):
            part, _, rest = name.partition(".")
            layer, _, kind = rest.partition(".")
            own = f"{number}.{layer}.linear.{kind}"
            arrays[own if part == "layers" else f"blockwise.{number}.{name}"] = array
        if "lm_head" in head:
            arrays[f"{number}.{len(place.layers)}.weight"] = head.lm_head.places[number].weight
    return arrays
