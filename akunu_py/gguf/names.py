"""Rules from GGUF tensor names to parameters of a model; a tensor without a rule is an error."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from akunu_py.gguf.plan import Conversion, Indices, Placement, RowOrder
from akunu_py.gguf.reader import TensorInfo
from akunu_py.system.errors import ModelFormatError

LAYER = "model.layers.{}"
ATTENTION = f"{LAYER}.self_attn"
FEED_FORWARD = f"{LAYER}.mlp"
"""Paths of a layer and its two parts in most classes; `{}` stands for the layer's number."""

_SUFFIXES = (".weight", ".bias")

LayerRows = RowOrder | Callable[[int], RowOrder | None] | None


@dataclass(frozen=True, slots=True)
class Rule:
    """The tensors of a module; made by `module` and `parameter`.

    `{}` stands for the layer's number, in sources and target alike.
    """

    sources: tuple[str, ...]
    target: str
    suffixes: tuple[str, ...]
    rows: LayerRows = None
    columns: Indices | None = None
    convert: Conversion | None = None
    layers: Callable[[int], bool] | None = None
    required: bool = True
    float32: bool = False
    default: NDArray[np.float32] | None = None

    def applies(self, layer: int) -> bool:
        return self.layers is None or self.layers(layer)


def module(
    source: str | Sequence[str],
    target: str,
    *,
    rows: LayerRows = None,
    columns: Indices | None = None,
    layers: Callable[[int], bool] | None = None,
    required: bool = True,
) -> Rule:
    """Map `source`.weight and, if the file has it, `source`.bias to those of `target`.

    The rows of several sources follow one another. `rows` applies to the weight's rows and the
    bias's elements alike; it may be a function of the layer's number. Several rules may share a
    source and take different rows.
    """
    sources = (source,) if isinstance(source, str) else tuple(source)
    return Rule(sources, target, _SUFFIXES, rows, columns, None, layers, required)


def modules(
    at: str,
    names: Mapping[str, str],
    *,
    layers: Callable[[int], bool] | None = None,
    required: bool = True,
) -> list[Rule]:
    """Map parts of a layer, as in {"attn_norm": "input_layernorm"}, to modules at `at`."""
    return [
        module(f"blk.{{}}.{source}", f"{at}.{target}", layers=layers, required=required)
        for source, target in names.items()
    ]


def parameter(
    source: str | Sequence[str],
    target: str,
    *,
    convert: Conversion | None = None,
    rows: LayerRows = None,
    layers: Callable[[int], bool] | None = None,
    required: bool = True,
    float32: bool = False,
    default: NDArray[np.float32] | None = None,
) -> Rule:
    """Map one tensor, given by its whole name, to one parameter, converted by `convert`.

    A tensor with a `default`, which stands for it, is not required.
    """
    sources = (source,) if isinstance(source, str) else tuple(source)
    required = required and default is None
    return Rule(sources, target, ("",), rows, None, convert, layers, required, float32, default)


def within(path: str, rules: Iterable[Rule]) -> list[Rule]:
    """Return rules for the modules of a model that is itself a module, at `path`."""
    return [replace(rule, target=f"{path}.{rule.target}") for rule in rules]


# Old converters also stored the frequencies that follow from the rope base. Scales of inputs belong
# to four-bit activations, which neither llama.cpp nor akunu has.
_ALWAYS_IGNORED = re.compile(r"blk\.\d+\.attn_rot_embd(\.weight)?|(blk\.\d+\.)?\w+\.input_scale")


def place(
    rules: Iterable[Rule],
    tensors: Mapping[str, TensorInfo],
    num_layers: int,
    *,
    ignored: str | None = None,
) -> tuple[Placement, ...]:
    """Return the placement of every tensor.

    `ignored` is a regular expression for whole names to leave out.

    Raises ModelFormatError, naming the tensors, if required ones are missing or no rule takes one:
    leaving it out could change the model's output.
    """
    rules = list(rules)
    placements: dict[str, Placement] = {}
    used: set[str] = set()
    missing: dict[str, None] = {}
    for rule in rules:
        numbered = "{}" in rule.target or any("{}" in source for source in rule.sources)
        for layer in range(num_layers) if numbered else (0,):
            if not rule.applies(layer):
                continue
            for suffix in rule.suffixes:
                names = tuple(source.format(layer) + suffix for source in rule.sources)
                absent = [name for name in names if name not in tensors]
                if absent:
                    optional = suffix == ".bias" or not rule.required
                    if not optional or len(absent) < len(names):
                        missing |= dict.fromkeys(absent)
                    continue
                path = rule.target.format(layer) + suffix
                if path in placements:
                    raise ValueError(f"two rules for {path}")
                rows = rule.rows(layer) if callable(rule.rows) else rule.rows
                columns = None if suffix == ".bias" else rule.columns
                placements[path] = Placement(
                    path=path,
                    tensors=names,
                    rows=rows,
                    columns=columns,
                    convert=rule.convert,
                    float32=rule.float32,
                    scales=_scales(rules, names, tensors, layer),
                )
                used.update(names, filter(None, placements[path].scales))
    if missing:
        shown = ", ".join([*missing][:8]) + (", ..." if len(missing) > 8 else "")
        raise ModelFormatError(
            f"{len(missing)} tensors are missing: {shown}; the file is incomplete: download it "
            "again"
        )
    unknown = re.compile(ignored) if ignored else None
    for name in tensors:
        if name in used or _ALWAYS_IGNORED.fullmatch(name):
            continue
        if unknown is None or not unknown.fullmatch(name):
            raise ModelFormatError(
                f"the model has a tensor {name!r} that akunu does not know there; leaving it out "
                "could change the model's output: use a conversion of the plain model"
            )
    return tuple(placements.values())


def _scales(
    rules: list[Rule], names: tuple[str, ...], tensors: Mapping[str, TensorInfo], layer: int
) -> tuple[str | None, ...]:
    """Return the names of the tensors by which weights are multiplied.

    Besides the scales of its blocks, NVFP4 has a number for a whole tensor. Converters store it as
    `x.scale` beside `x.weight`, and llama.cpp multiplies the output by it. A family with a rule for
    such a name has a separate parameter of that name.
    """
    found: list[str | None] = []
    for name in names:
        stem, _, suffix = name.rpartition(".")
        scale = f"{stem}.scale"
        if suffix != "weight" or scale not in tensors or len(tensors[name].shape) < 2:
            found.append(None)
            continue
        own = any(scale == source.format(layer) for rule in rules for source in rule.sources)
        found.append(None if own else scale)
    return tuple(found) if any(found) else ()


def halves_from_neighbours(heads: int, head_dim: int) -> RowOrder:
    """Return the rows of q or k for a rotation of halves, if neighbours rotate in the file.

    llama.cpp rotates rows (2 i, 2 i + 1) of a head together in the families that its converters
    reorder; mlx-lm classes without a switch rotate (i, i + head_dim / 2). Row i of a head is then
    the file's row 2 i, and row i + head_dim / 2 its row 2 i + 1.
    """
    return rows_of_each(range(heads), head_dim, [*range(0, head_dim, 2), *range(1, head_dim, 2)])


def rows_of_each(
    blocks: Sequence[int] | Indices, size: int, rows: Sequence[int] | Indices
) -> Indices:
    """Return these rows of each of these blocks, which have `size` rows each."""
    found: Indices = np.asarray(blocks, np.intp)[:, None] * size + np.asarray(rows, np.intp)
    return found.ravel()
