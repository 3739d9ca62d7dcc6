"""DFlash, DFlash 2 and DSpark heads in safetensors files with their config.json.

A kind is known by its tensors. Configs come in three layouts: `dflash_config` (the authors' and
SpecForge's), everything at the top (DeepSpec's), and `transformer_layer_config` (speculators').
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from mlx import nn
from mlx_lm.models.qwen3 import ModelArgs

from akunu_py.drafting.draft_model import MAX_DRAFT_TOKENS
from akunu_py.models.heads.dflash import BlockForm, DFlashHead
from akunu_py.models.heads.dflash2 import DFlash2Head
from akunu_py.models.heads.dspark import DSparkHead, MarkovForm
from akunu_py.models.heads.families import check_between_layers, decoder_of, shared_layers
from akunu_py.models.heads.head import SharedLayers
from akunu_py.models.heads.head_config import HeadConfig
from akunu_py.models.heads.stored_weights import StoredHead
from akunu_py.models.library_errors import from_library

_MARK = "hidden_norm.weight"
"""A parameter that no other head has; beside `fc`, no model either."""

FIRST, SECOND, SPARK = "a DFlash", "a DFlash 2", "a DSpark"
"""The kinds in words, for messages."""

_SECOND = ("candidate_selector.", "layers.0.attention_conv.", "layers.0.mlp_conv.")
_SPARK = ("markov_head.", "confidence_head.")
_W1, _CONFIDENCE = "markov_head.markov_w1.weight", "confidence_head.proj.weight"

_NESTED = "dflash_config."
_SPECULATORS = "transformer_layer_config."
_INPUTS = "aux_hidden_state_layer_ids"

_OF_DFLASH_2: Mapping[str, tuple[object, ...]] = {
    "conv_kernel_size": (None, 0), "selector_rank": (None, 0),
}  # fmt: skip
_OF_DSPARK: Mapping[str, tuple[object, ...]] = {
    "markov_rank": (None, 0), "enable_confidence_head": (None, False),
}  # fmt: skip
"""Entries of the other kinds -> the values with which they ask for nothing."""


def find_dflash(source: Path, _: nn.Module) -> StoredHead | None:
    """Return the DFlash, DFlash 2 or DSpark head in a file or folder, None where there is none.

    Raises ModelFormatError for a damaged file.
    """
    stored = StoredHead.of(source, _own_name)
    return stored if {_MARK, "fc.weight"} <= stored.tensors.keys() else None


def _own_name(name: str) -> str | None:
    # "t2d" says whether the target's tokens are among the head's, which follows from "d2t".
    own = name.removeprefix("model.")
    return None if name == "t2d" else f"{own}.weight" if own.endswith("_codebook") else own


def make_dflash(stored: StoredHead, target: nn.Module, architecture: str) -> DFlashHead:
    """Return a head without weights, of the kind that its tensors belong to.

    `architecture` names the target in messages. Raises UnsupportedArchitectureError for a target
    or a head that akunu cannot run, ModelFormatError, naming file and value, for a config that is
    missing, damaged or of another model.
    """
    kind, _, others, make = next(
        row for row in _KINDS if any(name.startswith(row[1]) for name in stored.tensors)
    )
    recipe = _Recipe.of(stored, target, architecture, kind, others)
    with from_library(stored.tensors[_MARK].path, "prediction head"):
        head, width = make(recipe), recipe.args.hidden_size
        head.add_own(stored.tensors, recipe.vocabulary, width, stored.num_guessed)
    return head


def _dflash2(recipe: "_Recipe") -> DFlashHead:
    width, vocabulary = recipe.args.hidden_size, recipe.vocabulary
    taps = recipe.integer("conv_kernel_size", 0, low=0, high=64)
    group = recipe.integer("conv_group_size", 1, high=width) if taps else 1
    if width % group:
        raise recipe.config.error(recipe.name("conv_group_size"), group, f"a divisor of {width}")
    rank = recipe.integer("selector_rank", 0, low=0)
    sizes: dict[str, Any] = {
        "taps": taps, "group": group, "rank": rank, "vocabulary": vocabulary,
        "candidates": recipe.integer("selector_top_k", high=vocabulary) if rank else 0,
    }  # fmt: skip
    return DFlash2Head(*recipe.arguments, **sizes)


def _dspark(recipe: "_Recipe") -> DFlashHead:
    stored, config, width = recipe.stored, recipe.config, recipe.args.hidden_size
    rank = recipe.integer(
        "markov_rank", stored.shape(_W1)[-1] if _W1 in stored.tensors else 0, low=0
    )
    form = config.value(recipe.name("markov_head_type")) or "vanilla"
    if form not in get_args(MarkovForm):
        raise config.error(recipe.name("markov_head_type"), form, "vanilla, gated or rnn")
    confidence = 0
    if config.flag(recipe.name("enable_confidence_head"), default=_CONFIDENCE in stored.tensors):
        # Configs need not say whether it takes the vector of the token before.
        alone = _CONFIDENCE in stored.tensors and stored.shape(_CONFIDENCE)[-1] == width
        confidence = width if alone else width + rank
    sizes: dict[str, Any] = {
        "rank": rank, "markov": form, "confidence": confidence, "vocabulary": recipe.vocabulary,
        "guessed": stored.num_guessed or recipe.vocabulary,
    }  # fmt: skip
    return DSparkHead(*recipe.arguments, **sizes)


_Kind = tuple[
    str, tuple[str, ...], Mapping[str, tuple[object, ...]], Callable[["_Recipe"], DFlashHead]
]

_KINDS: Sequence[_Kind] = (
    (SPARK, _SPARK, _OF_DFLASH_2, _dspark),
    (SECOND, _SECOND, _OF_DSPARK, _dflash2),
    (FIRST, ("",), {**_OF_DFLASH_2, **_OF_DSPARK}, lambda recipe: DFlashHead(*recipe.arguments)),
)
"""Kind in words, beginnings of tensors that only it has, what it does not have, and its maker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    """What the kinds have in common: the arguments of a head, and the entries of its config."""

    stored: StoredHead
    config: HeadConfig
    vocabulary: int
    args: ModelArgs
    shared: SharedLayers
    layers: tuple[int, ...]
    form: BlockForm

    @classmethod
    def of(
        cls,
        stored: StoredHead,
        target: nn.Module,
        architecture: str,
        kind: str,
        others: Mapping[str, tuple[object, ...]],
    ) -> "_Recipe":
        """Read the config of a head of a `kind`, which does not have what `others` ask for."""
        path = stored.tensors[_MARK].path
        check_between_layers(target, architecture, path, kind)
        config = stored.config(path, kind)
        at = _SPECULATORS if config.value(_SPECULATORS[:-1]) is not None else ""
        asked = config.unknown_forms(others, ("", _NESTED))
        asked += config.unknown_forms(at=tuple(dict.fromkeys(("", at, _NESTED))))
        if config.has_beside("mask_embedding.pt"):
            asked.append("an embedding of the mask token of its own, mask_embedding.pt")
        config.refuse(path, kind, asked)
        # Heads of DeepSpec's guess from the last token's row whatever their kind.
        of_deepspec = kind == SPARK or config.value("target_layer_ids") is not None
        of_deepspec |= config.value(_name(config, "projector_type")) == "dspark"
        _, decoder = decoder_of(target)
        vocabulary, width = decoder.embed_tokens.weight.shape[0], decoder.norm.weight.shape[0]
        args = ModelArgs(
            model_type="qwen3",
            num_hidden_layers=config.integer(f"{at}num_hidden_layers", high=256),
            # Only the layers are made.
            vocab_size=1,
            tie_word_embeddings=True,
            **config.layer_arguments(width, at),
        )
        layers = _layers(config, len(target.layers))
        windows, causal = _attention(config, args.num_hidden_layers, at)
        cap = _name(config, "final_logit_softcapping")
        form = BlockForm(
            size=config.integer(_name(config, "block_size"), low=2, high=1 + MAX_DRAFT_TOKENS),
            mask=config.integer(_name(config, "mask_token_id"), low=0, high=vocabulary - 1),
            windows=windows,
            causal=causal,
            last_guesses=config.flag(_name(config, "sample_from_anchor"), default=of_deepspec),
            bias=config.flag(f"{at}attention_bias"),
            embedding_scale=config.number(_name(config, "input_embedding_scale"), 1, high=1e6),
            multiplier=config.number(_name(config, "output_multiplier"), 1, high=1e6),
            cap=None if config.value(cap) is None else config.number(cap, 1, high=1e6),
        )
        return cls(
            stored=stored, config=config, vocabulary=vocabulary, args=args,
            shared=shared_layers(target, decoder), layers=layers, form=form,
        )  # fmt: skip

    @property
    def arguments(self) -> tuple[ModelArgs, SharedLayers, tuple[int, ...], BlockForm]:
        return self.args, self.shared, self.layers, self.form

    def name(self, entry: str) -> str:
        return _name(self.config, entry)

    def integer(self, entry: str, default: int | None = None, **limits: int) -> int:
        return self.config.integer(self.name(entry), default, **limits)


def _name(config: HeadConfig, entry: str) -> str:
    """Return the name of an entry that may be in `dflash_config` or at the top."""
    nested = f"{_NESTED}{entry}"
    return entry if config.value(nested) is None and config.value(entry) is not None else nested


def _attention(
    config: HeadConfig, count: int, at: str
) -> tuple[tuple[int | None, ...], tuple[bool, ...]]:
    """Return the windows of a head's layers, and which of them look back only.

    If the config does not say, layers with a window look back only, and others look both ways, as
    in vLLM and SGLang (#34524); heads draft better this way.
    """
    windows = config.windows(count, at)
    if config.flag(f"{_NESTED}use_swa"):
        window = config.integer(f"{_NESTED}swa_window_size")
        return (window,) * count, (config.flag(f"{_NESTED}causal"),) * count
    for name in (f"{_NESTED}causal", "causal", f"{at}is_causal", f"{_NESTED}is_causal",
                 "dflash_query_causal", f"{_NESTED}dflash_query_causal"):  # fmt: skip
        if config.value(name) is not None:
            return windows, (config.flag(name),) * count
    looks_ahead = config.flag("sliding_window_non_causal")
    return windows, tuple(window is not None and not looks_ahead for window in windows)


def _layers(config: HeadConfig, count: int) -> tuple[int, ...]:
    """Return the numbers of the target's layers whose inputs a head takes.

    Configs name those whose outputs it takes, -1 being the embedding's; speculators' name inputs.
    """
    inputs = config.value(_INPUTS) is not None
    name = _INPUTS if inputs else _name(config, "target_layer_ids")
    found = config.value(name)
    known = isinstance(found, list) and all(type(number) is int for number in found)
    numbers = tuple(number + (not inputs) for number in found) if known else ()
    ascending = numbers == tuple(sorted(set(numbers)))
    if not numbers or not ascending or numbers[0] < 0 or numbers[-1] >= count:
        wanted = f"layers of the model's {count} before the last, in ascending order"
        raise config.error(name, found, wanted)
    total = _name(config, "num_target_layers")
    if config.integer(total, count) != count:
        raise config.error(total, config.value(total), f"{count}, as the model has")
    return numbers
