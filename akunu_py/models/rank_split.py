"""Which part of a model a rank keeps: a share of each layer, or some of the layers.

mlx-lm's classes know how they are split. `shard` gives each rank a share of the heads and of the
feed-forward widths; `pipeline` gives each rank a run of layers. Neither reads a weight here:
`shard` says what it would cut (`_record_cuts`), and the cuts are made where weights are read.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, cast

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.nn.layers.distributed import shard_inplace
from mlx.utils import tree_flatten, tree_unflatten
from numpy.typing import NDArray

from akunu_py.models.layers import Scaled, StackedLinear
from akunu_py.system.errors import ConfigError

Way = Literal["tensor", "pipeline"]
_WHOLE = "sharded-to-all"
_LAYER_FUNCTIONS = ("shard_linear", "shard_inplace")


class Group(Protocol):
    """What splitting needs of a group; `mx.distributed.Group` has it."""

    def rank(self) -> int:
        """Return the number of this rank."""

    def size(self) -> int:
        """Return the number of ranks."""


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A group that does not exist, to find out what one of its ranks would keep."""

    number: int
    count: int

    def rank(self) -> int:
        return self.number

    def size(self) -> int:
        return self.count


class SummedLinear(nn.Module):  # type: ignore[misc]  # mlx.nn has no types
    """A linear layer over a share of its inputs; the results of all ranks are added up."""

    def __init__(self, inner: nn.Module, group: Any) -> None:
        super().__init__()
        self.inner = inner
        self._group = group
        if "bias" in inner:
            # Added once, not by every rank.
            self.bias = inner.pop("bias")

    def __call__(self, x: mx.array) -> mx.array:
        """Multiply this rank's part of x [..., in / ranks]; the result is [..., out]."""
        y = mx.distributed.all_sum(self.inner(x), group=self._group)
        return y + self["bias"] if "bias" in self else y


def on_any_rank(group: Group | None, found: bool) -> bool:
    """Return whether something was found on any rank; all of them must ask."""
    if group is None or isinstance(group, PlannedGroup):
        return found
    count = mx.distributed.all_sum(mx.array(int(found)), group=cast("Any", group))
    return bool(count.item())


@dataclass(frozen=True, slots=True)
class Cut:
    """What a rank keeps of one layer."""

    sharding: str | Callable[..., Any]
    """MLX's name for it: "all-to-sharded" keeps some outputs, "sharded-to-all" some inputs. Or a
    function of parameter and array that returns axis and segments."""

    segments: Any = 1
    """Parts of the layer that are cut one by one, or where they end."""

    summed: bool = False
    """Whether the layer itself adds up the ranks' results."""


class Kept(NamedTuple):
    """What a rank keeps of a parameter: the axis along which it is cut, and the indices there."""

    axis: int
    indices: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Split:
    """How a model is split, and the part of one rank."""

    way: Way
    """Whether every layer is cut ("tensor") or each rank gets some layers ("pipeline")."""

    group: Any
    cuts: dict[str, Cut] = field(default_factory=dict)
    """By the path of each layer that is cut."""

    whole_model: bool = False
    """Whether the class changes further weights, so that it must see all of them."""

    def part_of(self, path: str, shape: tuple[int, ...]) -> Kept | None:
        """Return the part of a dense parameter of that shape that this rank keeps; None for all.

        Raises ConfigError for one that does not divide.
        """
        if path.rpartition(".")[0] not in self.cuts:
            return None
        part = self.cut_array(path, mx.broadcast_to(mx.zeros(()), shape)).shape
        axes = [axis for axis, size in enumerate(shape) if part[axis] != size]
        if not axes:
            return None
        (axis,) = axes
        lone = [1] * len(shape)
        lone[axis] = shape[axis]
        found = self.cut_array(path, mx.arange(shape[axis]).reshape(lone))
        return Kept(axis, np.array(found).reshape(-1).astype(np.intp))

    def cut(self, path: str, layer: nn.Module) -> None:
        """Reduce a layer to this rank's part, in place and unevaluated.

        Raises ConfigError for a layer that does not divide.
        """
        cut = self.cuts.get(path)
        if cut is None:
            return
        if isinstance(layer, StackedLinear):
            raise stacked_error(path)
        # The factors of outputs belong to all ranks when inputs are cut.
        inner = layer.inner if isinstance(layer, Scaled) and cut.sharding == _WHOLE else layer
        try:
            shard_inplace(inner, cut.sharding, segments=cut.segments, group=self.group)
        except ValueError:
            raise _cannot_divide(f"the layer {path}", self.group.size()) from None

    def cut_array(self, path: str, array: mx.array) -> mx.array:
        """Return this rank's part of a parameter; see `cut`."""
        layer_path, _, name = path.rpartition(".")
        holder = nn.Module()
        holder[name] = array
        self.cut(layer_path, holder)
        part: mx.array = holder[name]
        return part

    def join(self, model: nn.Module) -> None:
        """Have the layers whose inputs were cut add up the results of all ranks."""
        modules = dict(model.named_modules())
        model.update_modules(
            tree_unflatten(
                [
                    (path, SummedLinear(modules[path], self.group))
                    for path, cut in self.cuts.items()
                    if cut.summed
                ]
            )
        )

    def apply(self, model: nn.Module) -> None:
        """Reduce a model whose weights are still unevaluated to this rank's part."""
        self.cut_all(model)
        self.join(model)

    def cut_all(self, model: nn.Module) -> None:
        """Reduce all layers of a model, as `cut` does; `join` is then missing."""
        modules = dict(model.named_modules())
        for path in self.cuts:
            self.cut(path, modules[path])


def prepare(model: nn.Module, group: Group, name: str) -> Split:
    """Make a model without weights, or with unevaluated ones, ready for its rank.

    Afterwards it has the heads, or the layers, of this rank; `Split` cuts the weights. A pipeline
    is taken where the class cannot be cut, or its sizes do not divide by the number of ranks.

    Raises ConfigError where neither is possible; `name` is the model's in the message.
    """
    size = group.size()
    reason = f"mlx-lm cannot split the layers of {name}"
    if hasattr(model, "shard"):
        before = [(module, dict(module), dict(vars(module))) for module in model.modules()]
        try:
            return _tensor_split(model, group)
        except ConfigError as error:
            reason = str(error)
        # A model of its own would need all headers read again.
        for module, parts, attributes in before:
            dict.clear(module)
            dict.update(module, parts)
            vars(module).clear()
            vars(module).update(attributes)
    inner = getattr(model, "model", None)
    if inner is None or not hasattr(inner, "pipeline"):
        raise ConfigError(
            f"{name} cannot run on {size} ranks: {reason}, and mlx-lm has no pipeline for it; "
            "start another number of ranks, or take another model"
        )
    if len(inner.layers) < size:
        raise ConfigError(
            f"{name} has {len(inner.layers)} layers, too few for a pipeline of {size} ranks; start "
            "fewer"
        )
    inner.pipeline(group)
    return Split("pipeline", group)


def plan(model: nn.Module, group: PlannedGroup, name: str) -> tuple[Way, float]:
    """Reduce a model without weights to what a rank would have; it can then make its caches.

    Returns the way of splitting, and this rank's share of all weights. Raises as `prepare` does.
    """
    whole = _num_weights(model)
    split = prepare(model, group, name)
    split.apply(model)
    for module in model.modules():
        # Nothing is sent where nothing is computed, but such a group cannot even be named.
        for key, value in vars(module).items():
            if value is group:
                setattr(module, key, None)
    if split.way == "pipeline":
        model.model.pipeline_rank, model.model.pipeline_size = 0, 1
    return split.way, _num_weights(model) / whole


def _num_weights(model: nn.Module) -> int:
    return sum(array.size for _, array in tree_flatten(model.parameters()))


def _tensor_split(model: nn.Module, group: Group) -> Split:
    size = group.size()
    # Held until the end: a layer that `shard` drops would leave its id to one that it makes.
    named = model.named_modules()
    paths = {id(module): path for path, module in named}
    numbers = [
        (module, key, value)
        for _, module in named
        for key, value in vars(module).items()
        if type(value) is int
    ]
    arrays = dict(tree_flatten(model.parameters()))
    with _record_cuts(model) as record:
        try:
            model.shard(group)
        except (ArithmeticError, AssertionError, ValueError):
            raise _cannot_divide("its width", size) from None
        except AttributeError:
            # A class that inherits `shard`, of another one's layers.
            raise ConfigError("mlx-lm splits other layers than this model has") from None
    for module, key, before in numbers:
        after = getattr(module, key)
        # Some classes repeat heads that are fewer than the ranks; each rank then has one.
        repeated = after == 1 and before < size and size % before == 0
        if after not in (before, before / size) and not repeated:
            raise _cannot_divide(f"{key} = {before}", size)
    changed = any(array is not arrays.get(path) for path, array in tree_flatten(model.parameters()))
    cuts = {paths[id(module)]: cut for module, cut in record}
    split = Split("tensor", group, cuts, whole_model=changed)
    # Tried on arrays of the same shapes, to find what does not divide before anything is read.
    for path, array in tree_flatten(model.parameters()):
        split.cut_array(path, mx.broadcast_to(mx.zeros((), array.dtype), array.shape))
    return split


def stacked_error(path: str) -> ConfigError:
    """Return the error for a layer whose parts have different quantizations."""
    return ConfigError(
        f"{path} is made of tensors of different quantizations, which cannot be split over ranks; "
        "use a file with one quantization for all parts of a layer"
    )


def _cannot_divide(what: str, size: int) -> ConfigError:
    return ConfigError(f"{what} does not divide by {size}")


@contextlib.contextmanager
def _record_cuts(model: nn.Module) -> Iterator[list[tuple[nn.Module, Cut]]]:
    """Have `shard` of mlx-lm's classes say which layers it cuts, instead of cutting them.

    MLX's own functions cut its own layers only, and whole ones. So the two names by which the
    classes call them stand for others meanwhile.
    """
    record: list[tuple[nn.Module, Cut]] = []

    def linear(module: nn.Module, sharding: str, *, segments: Any = 1, **_group: Any) -> nn.Module:
        record.append((module, Cut(sharding, segments, summed=sharding == _WHOLE)))
        return module

    def inplace(module: nn.Module, sharding: Any, *, segments: Any = 1, **_group: Any) -> None:
        record.append((module, Cut(sharding, segments)))

    spaces = [
        module.shard.__func__.__globals__ for module in model.modules() if hasattr(module, "shard")
    ]
    ours = dict(zip(_LAYER_FUNCTIONS, (linear, inplace), strict=True))
    with contextlib.ExitStack() as stack:
        for space in {id(space): space for space in spaces}.values():
            for name in ours.keys() & space.keys():
                stack.callback(space.__setitem__, name, space[name])
                space[name] = ours[name]
        yield record
