"""LoRA adapters as mlx-lm, llama.cpp and PEFT write them: what they change, before it is read.

An adapter adds up @ down, scaled, to a matrix [out, in] of a model; up is [out, r] and down [r, in]
(Hu et al. 2021, arXiv:2106.09685). An embedding is seen as the matrix [width, tokens] that
multiplies a token's unit vector. DoRA also gives every output a new length (Liu et al. 2024,
arXiv:2402.09353).
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx

from akunu_py.gguf.quants.forms import SUPPORTED_TYPES
from akunu_py.gguf.quants.matrix import dequantize
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.folder_settings import read_json
from akunu_py.models.library_errors import explain_errors
from akunu_py.models.weight_files import Shapes, check_weight_file, read_header
from akunu_py.system.errors import ConfigError, ModelFormatError

_MLX_FILE, _PEFT_FILE, _CONFIG = (
    "adapters.safetensors",
    "adapter_model.safetensors",
    "adapter_config.json",
)
_PICKLE = "adapter_model.bin"
_FLOATS = ("F32", "F16", "BF16")
EMBEDDING = "token_embd.weight"
_MOST = 1e6
"""Largest scale, and number; those of real adapters are below 1000."""

_MLX_NAME = re.compile(r"(.+)\.(?:lora_(a|b)|(m))")
_PEFT_NAME = re.compile(
    r"base_model\.model\.(.+)\.lora_(?:(?:embedding_)?([AB])|(magnitude)_vector)"
    r"(?:\.default)?(?:\.weight)?"
)
_GGUF_NAME = re.compile(r"(.+)\.lora_(a|b)()")

_OF_BASE_WEIGHTS = (True, False, None, "gaussian", "eva", "orthogonal")
"""Values of `init_lora_weights` that leave the model's own weights as they are."""

_REFUSED_ENTRIES = {
    "modules_to_save": "whole layers beside the factors",
    "alora_invocation_tokens": "tokens that switch it on",
    "layer_replication": "layers of the model once more",
    "target_parameters": "parameters outside its layers",
    "trainable_token_indices": "rows of the embedding",
}
"""Entries of PEFT's config for what akunu does not run, and what they say an adapter has."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A tensor of an adapter; `turned` where the file has it the other way round."""

    name: str
    shape: tuple[int, ...]
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """What is added to one matrix, or to a stack of them: scale * up @ down."""

    layer: str
    """The name of a layer in the model's class, or of a tensor in a GGUF file."""

    up: Factor
    """[..., out, r]."""

    down: Factor
    """[..., r, in]."""

    scale: float
    magnitude: str | None = None
    """The tensor with the lengths of DoRA, [out]."""

    @property
    def rank(self) -> int:
        return self.down.shape[-2]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the matrix, [..., out, in]."""
        return (*self.up.shape[:-1], self.down.shape[-1])


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter whose header was checked; its numbers are still on disk."""

    path: Path
    kind: Literal["MLX", "PEFT", "GGUF"]
    changes: tuple[Change, ...]
    strength: float = 1.0
    """What all of it is multiplied with, as the user gave it."""

    architecture: str = ""
    """`general.architecture` of a GGUF file."""

    @property
    def name(self) -> str:
        shown = self.path.name.removesuffix(".gguf")
        return shown if self.strength == 1 else f"{shown}:{self.strength:g}"

    @property
    def summary(self) -> str:
        """Return kind and rank, in words."""
        ranks = sorted({change.rank for change in self.changes})
        shown = str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"
        lengths = any(change.magnitude for change in self.changes)
        return f"{'DoRA' if lengths else 'LoRA'} of rank {shown}"

    @property
    def num_weights(self) -> int:
        factors = (factor for one in self.changes for factor in (one.up, one.down))
        return sum(math.prod(factor.shape) for factor in factors)

    def reader(self) -> Callable[[str], mx.array]:
        """Return readers of a tensor by name, as float32 and as the file has it.

        It raises ModelFormatError for NaN and for numbers that no adapter has.
        """
        if self.kind == "GGUF":
            read = _gguf_reader(self.path)
        else:
            file = self.path / (_MLX_FILE if self.kind == "MLX" else _PEFT_FILE)
            stored: Any = mx.load(str(file))
            read = stored.__getitem__

        def checked(name: str) -> mx.array:
            array = read(name).astype(mx.float32)
            # Written so that NaN is refused.
            if not (mx.abs(array) <= _MOST).all().item():
                raise ModelFormatError(
                    f"tensor {name!r} of the adapter {self.path} has NaN, or numbers beyond "
                    f"{_MOST:g}; download it again"
                )
            return array

        return checked


def adapter_place(given: str | Path) -> tuple[Path, float]:
    """Return the path in PATH or PATH:SCALE, and the scale; raise ConfigError for another type."""
    if not isinstance(given, str | Path):
        raise ConfigError(f"the adapter is {str(given)[:80]!r}; give the path of one")
    path = Path(given).expanduser()
    head, _, tail = str(given).rpartition(":")
    if head and re.fullmatch(r"-?\d{1,6}(\.\d{1,6})?", tail) and not path.exists():
        return Path(head).expanduser(), float(tail)
    return path, 1.0


def open_adapter(given: str | Path, group: object = None) -> Adapter:
    """Read the header of the adapter at PATH or PATH:SCALE: a GGUF file, or a folder.

    Raises ConfigError for a path without an adapter or one that akunu cannot run, and for a `group`
    of several ranks, ModelFormatError for a damaged one.
    """
    if group is not None:
        raise ConfigError(
            "an adapter does not go with a model on several machines; leave the adapter out, or "
            "merge it into the model where it was trained"
        )
    with explain_errors(given):
        return _open(*adapter_place(given))


def _open(path: Path, strength: float) -> Adapter:
    if path.name in (_MLX_FILE, _PEFT_FILE, _PICKLE, _CONFIG):
        path = path.parent
    if not path.exists():
        raise ConfigError(f"the adapter {path} does not exist; give a folder or a GGUF file")
    if not path.is_dir():
        return _open_gguf(path, strength)
    if (path / _MLX_FILE).exists():
        return Adapter(path, "MLX", _mlx_changes(path), strength)
    if (path / _PEFT_FILE).exists():
        return Adapter(path, "PEFT", _peft_changes(path), strength)
    if (path / _PICKLE).exists():
        raise ConfigError(
            f"{path / _PICKLE} is a pickle, which can run code, so akunu does not open it; convert "
            'it in its folder: python -c "import torch, safetensors.torch as s; '
            f"s.save_file(torch.load('{_PICKLE}', weights_only=True), '{_PEFT_FILE}')\""
        )
    raise ConfigError(
        f"{path} has no adapter; give a folder with {_MLX_FILE} (mlx-lm) or {_PEFT_FILE} (PEFT), "
        "or a GGUF file"
    )


def _open_gguf(path: Path, strength: float) -> Adapter:
    with GGUFFile.open(path) as file:
        found = file.metadata
        if found.get("general.type") != "adapter":
            raise ConfigError(f"{path} is a model, not an adapter; give it as the MODEL")
        kind, alpha = found.get("adapter.type"), found.get("adapter.lora.alpha", 0.0)
        if kind != "lora" or "adapter.alora.invocation_tokens" in found:
            shown = "aLoRA" if kind == "lora" else str(kind)[:40]
            raise ConfigError(f"{path} is an adapter of the kind {shown}; akunu runs LoRA alone")
        alpha = _number(path, "adapter.lora.alpha", alpha)
        architecture = str(found.get("general.architecture"))
        shapes = {name: info.shape for name, info in file.tensors.items()}
        for name, info in file.tensors.items():
            if info.type.name not in SUPPORTED_TYPES:
                raise ModelFormatError(f"tensor {name!r} of {path} is of the type {info.type.name}")
    pairs = _pairs(path, shapes, _GGUF_NAME)
    changes = []
    for layer, parts in pairs.items():
        down, up = (Factor(parts[key], shapes[parts[key]]) for key in "ab")
        if layer.endswith(EMBEDDING):
            # So that llama.cpp looks up its rows.
            down = Factor(down.name, down.shape[::-1], turned=True)
        # llama.cpp takes an adapter without alpha as it is.
        scale = alpha / max(1, up.shape[-1]) if alpha else 1.0
        changes.append(_checked(path, Change(layer, up, down, scale), shapes))
    return Adapter(path, "GGUF", tuple(changes), strength, architecture)


def _gguf_reader(path: Path) -> Callable[[str], mx.array]:
    file = GGUFFile.open(path)

    def read(name: str) -> mx.array:
        info = file.tensors[name]
        return mx.array(dequantize(info, file.tensor_bytes(name)).reshape(info.shape))

    return read


def _mlx_changes(folder: Path) -> tuple[Change, ...]:
    config, shapes = _config(folder), _shapes(folder / _MLX_FILE)
    kind = config.get("fine_tune_type", "lora")
    if kind not in ("lora", "dora"):
        raise ConfigError(
            f"{folder} has whole weights ({str(kind)[:40]}), not an adapter; make a model of it: "
            f"mlx_lm.fuse --model MODEL --adapter-path {folder}"
        )
    numbers = config.get("lora_parameters")
    if not isinstance(numbers, dict) or "scale" not in numbers:
        raise ModelFormatError(f"{folder / _CONFIG} has no lora_parameters with a scale")
    scale = _number(folder / _CONFIG, "scale", numbers["scale"])
    changes = []
    for layer, parts in _pairs(folder, shapes, _MLX_NAME).items():
        first, second = shapes[parts["a"]], shapes[parts["b"]]
        # Single layers multiply x @ a @ b; experts keep both as in the matrix.
        turned = len(first) == 2
        if turned:
            first, second = first[::-1], second[::-1]
        down, up = Factor(parts["a"], first, turned), Factor(parts["b"], second, turned)
        changes.append(_checked(folder, Change(layer, up, down, scale, parts.get("m")), shapes))
        if kind == "dora" and "m" not in parts:
            raise ModelFormatError(f"{folder} is a DoRA adapter without lengths of {layer}")
    return tuple(changes)


def _peft_changes(folder: Path) -> tuple[Change, ...]:
    config, shapes = _config(folder), _shapes(folder / _PEFT_FILE)
    kind = config.get("peft_type")
    if kind != "LORA":
        raise ConfigError(f"{folder} is an adapter of the kind {str(kind)[:40]}; akunu runs LORA")
    for entry, what in _REFUSED_ENTRIES.items():
        if config.get(entry):
            raise ConfigError(
                f"{folder} has {what} ({entry}), which akunu cannot apply; merge it into its model "
                "with PEFT's merge_and_unload"
            )
    if config.get("bias", "none") != "none" or config.get("lora_bias"):
        raise ConfigError(
            f"{folder} changes biases, which akunu cannot apply; merge it into its model with "
            "PEFT's merge_and_unload"
        )
    begun = config.get("init_lora_weights", True)
    if begun not in _OF_BASE_WEIGHTS:
        raise ConfigError(
            f"{folder} was trained on a model that init_lora_weights={str(begun)[:20]!r} changed; "
            "save it with path_initial_model_for_weight_conversion, or merge it with PEFT"
        )
    ranks, alphas = (_patterns(folder, config, name) for name in ("rank_pattern", "alpha_pattern"))
    changes = []
    for layer, parts in _pairs(folder, shapes, _PEFT_NAME).items():
        down, up = (Factor(parts[key], shapes[parts[key]]) for key in "ab")
        rank = _of_layer(ranks, layer, _number(folder / _CONFIG, "r", config.get("r")))
        alpha = _of_layer(
            alphas, layer, _number(folder / _CONFIG, "lora_alpha", config.get("lora_alpha"))
        )
        scale = alpha / (math.sqrt(max(1, rank)) if config.get("use_rslora") else max(1, rank))
        change = _checked(folder, Change(layer, up, down, scale, parts.get("m")), shapes)
        if change.rank != rank or bool(config.get("use_dora")) != ("m" in parts):
            raise ModelFormatError(
                f"the factors of {layer} in {folder} have the rank {change.rank}"
                f"{' and lengths' if 'm' in parts else ''}, and {_CONFIG} says otherwise"
            )
        changes.append(change)
    return tuple(changes)


def _config(folder: Path) -> dict[str, Any]:
    if not (folder / _CONFIG).exists():
        raise ModelFormatError(f"{folder} has no {_CONFIG}, which says how strong the adapter is")
    return read_json(folder / _CONFIG)


def _shapes(path: Path) -> Shapes:
    """Return the shapes of a file's tensors, which are floats."""
    shapes = check_weight_file(path)
    header, _ = read_header(path)
    for name, entry in header.items():
        if entry["dtype"] not in _FLOATS:
            raise ModelFormatError(f"tensor {name!r} of {path} is of the type {entry['dtype']}")
    return shapes


def _pairs(
    path: Path, names: Iterable[str], pattern: "re.Pattern[str]"
) -> dict[str, dict[str, str]]:
    """Return the tensors of each layer: "a", "b" and, with lengths, "m".

    `pattern` finds the layer in a name, the letter of a factor, and whether it has lengths.
    """
    pairs: dict[str, dict[str, str]] = {}
    for name in names:
        if name.endswith(".base_layer.weight"):
            # PEFT saves an embedding's own matrix beside the factors, unchanged.
            continue
        match = pattern.fullmatch(name)
        if match is None:
            raise ConfigError(
                f"the adapter {path} has the tensor {name[:120]!r}, which is not a LoRA factor; "
                "merge the adapter into its model where it was trained"
            )
        layer, factor, _ = match.groups()
        if pairs.setdefault(layer, {}).setdefault((factor or "m").lower(), name) != name:
            raise ModelFormatError(f"the adapter {path} has a factor of {layer} twice")
    if not pairs:
        raise ModelFormatError(f"the adapter {path} changes no layer")
    for layer, parts in pairs.items():
        if not {"a", "b"} <= parts.keys():
            raise ModelFormatError(f"the adapter {path} has one of two factors of {layer}")
    return pairs


def _checked(path: Path, change: Change, shapes: Shapes) -> Change:
    up, down = change.up.shape, change.down.shape
    sound = len(up) in (2, 3) and len(up) == len(down) and min(*up, *down) > 0
    if not sound or up[:-2] != down[:-2] or up[-1] != down[-2]:
        raise ModelFormatError(
            f"the factors of {change.layer} in the adapter {path} have the shapes {up} and {down}, "
            "which do not belong together"
        )
    if change.magnitude is not None and math.prod(shapes[change.magnitude]) != up[-2]:
        raise ModelFormatError(f"the lengths of {change.layer} in {path} are not {up[-2]} numbers")
    return change


def _number(path: Path, name: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST:
        return float(value)
    raise ModelFormatError(f"{path} has {str(value)[:40]!r} for {name}, not a usable number")


def _patterns(folder: Path, config: Mapping[str, Any], name: str) -> dict[str, float]:
    """Return numbers by the ends of layers' names, and with ^ by whole names.

    PEFT allows any expressions there.
    """
    found = config.get(name) or {}
    plain = isinstance(found, dict) and all(re.fullmatch(r"\^?[\w.]+", key) for key in found)
    if not plain:
        raise ConfigError(
            f"{folder / _CONFIG} has a {name} that is not one of names; merge the adapter into its "
            "model with PEFT's merge_and_unload"
        )
    return {key: _number(folder / _CONFIG, name, value) for key, value in found.items()}


def _of_layer(numbers: Mapping[str, float], layer: str, usual: float) -> float:
    """Return the number of the first pattern that fits, as PEFT's `get_pattern_key` finds it."""
    fits = (n for end, n in numbers.items() if re.fullmatch(rf"(.*\.)?({end})", layer))
    return next(fits, usual)
