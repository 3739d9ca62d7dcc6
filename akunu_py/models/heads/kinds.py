"""The kinds of prediction heads: where each is found, how it is made, and what draws with it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
from mlx import nn

from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.heads.assistant import (
    Assistant,
    check_ordering,
    find_assistant,
    make_stored_assistant,
    plan_assistant,
)
from akunu_py.models.heads.assistant_model import AssistantTokenModel
from akunu_py.models.heads.dflash import DFlashHead
from akunu_py.models.heads.eagle import EagleHead, find_eagle, make_eagle
from akunu_py.models.heads.gguf_drafters import plan_dflash, plan_eagle
from akunu_py.models.heads.gguf_head import plan_mtp
from akunu_py.models.heads.head import CachedHead, PredictionHead
from akunu_py.models.heads.look_ahead import (
    LookAheadHead,
    LookAheadTokenModel,
    find_look_ahead,
    make_look_ahead,
)
from akunu_py.models.heads.parallel import ParallelHead, find_parallel, make_parallel
from akunu_py.models.heads.stored_dflash import find_dflash, make_dflash
from akunu_py.models.heads.stored_head import arrange_mtp, find_mtp, make_mtp
from akunu_py.models.heads.stored_weights import StoredHead
from akunu_py.models.heads.token_model import BlockTokenModel, HeadTokenModel

Head = CachedHead | Assistant
"""A head with its weights."""

HeadModel = HeadTokenModel | AssistantTokenModel | LookAheadTokenModel
"""A head that draws tokens."""

Arrays = dict[str, mx.array]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadKind:
    """A kind of head. Functions take the target, whose weights they do not read."""

    head: type[nn.Module]
    model: Callable[..., HeadModel]
    """Draws with a head: model(head, context=, vocabulary_size=)."""

    find: Callable[[Path, nn.Module], StoredHead | None]
    """Looks into a safetensors file or a folder."""

    make: Callable[[StoredHead, nn.Module, str], Head]
    """Makes what was found without weights, for a target and the name of its architecture."""

    arrange: Callable[[StoredHead, Arrays, nn.Module], Arrays] = lambda _, arrays, __: arrays
    """Checks stored arrays and gives them their paths in the head."""

    plan: Callable[[GGUFFile, nn.Module, str], tuple[Head, ModelPlan] | None] = lambda *_: None
    """Looks into a GGUF file: a head without weights, and where they come from."""

    shares: bool = True
    """Whether copies of the target's embedding and output head are left out."""


KINDS = (
    # First those that are known by their tensors, whose configs need not be those of models.
    HeadKind(
        head=EagleHead,
        model=HeadTokenModel,
        find=find_eagle,
        make=make_eagle,
        plan=plan_eagle,
    ),
    # With DFlash 2 and DSpark, whose classes are derived from it.
    HeadKind(
        head=DFlashHead,
        model=BlockTokenModel,
        find=find_dflash,
        make=make_dflash,
        plan=plan_dflash,
    ),
    HeadKind(head=ParallelHead, model=BlockTokenModel, find=find_parallel, make=make_parallel),
    HeadKind(
        head=LookAheadHead,
        model=LookAheadTokenModel,
        find=find_look_ahead,
        make=make_look_ahead,
    ),
    HeadKind(
        head=Assistant,
        model=AssistantTokenModel,
        find=find_assistant,
        make=make_stored_assistant,
        arrange=check_ordering,
        plan=plan_assistant,
        shares=False,
    ),
    HeadKind(
        head=PredictionHead,
        model=HeadTokenModel,
        find=find_mtp,
        make=make_mtp,
        arrange=arrange_mtp,
        plan=plan_mtp,
    ),
)
"""All kinds, in the order in which a place is searched for them."""


def make_head_model(head: Head, *, context: int, vocabulary_size: int) -> HeadModel:
    """Return a model that draws with a head; `vocabulary_size` is that of the target's logits.

    Raises ConfigError for a head whose caches cannot drop slots.
    """
    kind = next(kind for kind in KINDS if isinstance(head, kind.head))
    return kind.model(head, context=context, vocabulary_size=vocabulary_size)
