"""A GGUF model kept as a folder of MLX arrays, so that it opens without a re-layout.

config.json, model*.safetensors   as mlx-lm writes them; mlx-lm loads them too if every layer has
                                  one of MLX's own forms
akunu.json, akunu.safetensors     the forms of all layers, and arrays unknown to mlx-lm
metadata.gguf                     the unchanged metadata, with tokenizer and chat template
tokenizer.json, ...               the tokenizer for mlx-lm, if its kind can be written so
"""

import dataclasses
import json
import logging
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.switch_layers import SwitchLinear

from akunu_py.gguf.cursor import MetadataValue
from akunu_py.gguf.metadata_file import write_metadata
from akunu_py.gguf.plan import ModelPlan, RotaryFactors, RotaryScaling
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.converted_plan import (
    DESCRIPTION,
    EXTRA,
    FORMAT,
    METADATA,
    errors_of_converted,
    plan_of,
    read_description,
)
from akunu_py.models.expansion import STOCK_LAYERS
from akunu_py.models.gguf_model import make_model, set_rotary_scaling
from akunu_py.models.layers import (
    FrequencyRope,
    Planes,
    Scaled,
    ScaledLinear,
    ScaledSwitchLinear,
    StackedLinear,
)
from akunu_py.models.load_steps import try_passes
from akunu_py.models.ranks.split import Group, prepare
from akunu_py.models.variants import VARIANT_PREFIX
from akunu_py.models.weight_files import check_weight_file, check_weight_files
from akunu_py.models.weights import MATRIX_LAYERS, planes_layer, quantized_layer
from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.tokenizers import from_gguf
from akunu_py.tokenizers.hugging_face import tokenizer_files

_log = logging.getLogger(__name__)

_GROUP_SIZES = (16, 32, 64, 128)
_TYPES = {"float16": mx.float16, "bfloat16": mx.bfloat16, "float32": mx.float32}


def check_new(folder: Path, num_bytes: int = 0) -> None:
    """Raise ConfigError where the folder exists, or its disk has less than `num_bytes` left."""
    if folder.exists() or folder.is_symlink():
        raise ConfigError(f"{folder} exists; give the name of a new folder")
    above = next((place for place in folder.absolute().parents if place.is_dir()), None)
    free = num_bytes if above is None else shutil.disk_usage(above).free
    if free < num_bytes:
        raise ConfigError(
            f"{folder} would take about {num_bytes / 1e6:,.0f} MB, and its disk has "
            f"{free / 1e6:,.0f} MB left; make room, or give a folder on another disk"
        )


def save_converted(
    folder: Path,
    metadata: Mapping[str, MetadataValue],
    plan: ModelPlan,
    model: nn.Module,
    *,
    fitted_types: Sequence[str] = (),
) -> bool:
    """Write a model built from a GGUF file into a new folder; return whether mlx-lm loads it too.

    `fitted_types` are the GGML types whose weights are not exactly the file's. The folder gets its
    name last, so that it is complete or absent. Raises ConfigError for a folder that exists or
    cannot be written.
    """
    check_new(folder)
    part = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        part.chmod(0o755)  # as any other folder; temporary ones are private
        forms, extra = _describe(model)
        # mlx-lm's classes do not know the rotary layers that replaced theirs.
        stock = plan.rotary is None and not plan.model.startswith(VARIANT_PREFIX)
        stock = stock and not any(
            form["form"] in ("planes", "stacked", "scaled", "rotary") for form in forms.values()
        )
        tokenizer = from_gguf(metadata)
        _write_json(
            part / DESCRIPTION,
            {
                "format": FORMAT,
                "model": plan.model,
                "arguments": plan.arguments,
                "architecture": plan.architecture,
                "num_layers": plan.num_layers,
                "context_length": plan.context_length,
                "vocabulary_size": plan.vocabulary_size,
                "layers": forms,
                "fitted_types": list(fitted_types),
                "compute_type": _compute_type(model),
                "factors_change_at": (
                    plan.rotary.original_context
                    if isinstance(plan.rotary, RotaryFactors) and plan.rotary.long_tensor
                    else None
                ),
                "rotary": (
                    dataclasses.asdict(plan.rotary)
                    if isinstance(plan.rotary, RotaryScaling)
                    else None
                ),
            },
        )
        files = tokenizer_files(metadata)
        config = _config(plan, forms, sorted(tokenizer.end_ids), stock=stock)
        _write_json(part / "config.json", config)
        for name, content in (files or {}).items():
            _write_json(part / name, content)
        write_metadata(part / METADATA, metadata)
        mx.save_safetensors(str(part / EXTRA), {"akunu.format": mx.array(FORMAT), **extra})
        from akunu_py.models.whole_mlx_lm import save_model  # loading does without

        save_model(part, model)
        read_by_mlx_lm = stock and files is not None and _tokenizer_loads(part, config)
        part.rename(folder)
    except OSError as error:
        raise ConfigError(f"cannot write {folder}: {error.strerror or error}") from error
    except RuntimeError as error:
        # MLX's error has no errno.
        if "Unable to write" not in str(error):
            raise
        raise ConfigError(
            f"cannot write {folder}: the disk is full, or the file exceeds a size limit"
        ) from error
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)
    return read_by_mlx_lm


def load_converted(
    folder: Path, context: int | None, group: Group | None = None
) -> tuple[nn.Module, ModelPlan, tuple[str, ...], GGUFFile]:
    """Return model, plan (without placements), fitted types and open metadata of a converted model.

    The model's weights are still on disk. With a `group` of several ranks, it is the part of this
    rank.

    Raises ModelFormatError where the files of the folder contradict each other, ConfigError for a
    context that needs other rotary factors than the folder has.
    """
    check_weight_files(folder)
    with errors_of_converted(folder):
        check_weight_file(folder / EXTRA)
        description = read_description(folder / DESCRIPTION)
        plan = plan_of(description)
        arrays: dict[str, mx.array] = {}
        for path in (*sorted(folder.glob("model*.safetensors")), folder / EXTRA):
            arrays.update(mx.load(str(path)).items())  # type: ignore[union-attr]
        del arrays["akunu.format"]
        model = make_model(plan)
        if isinstance(plan.rotary, RotaryScaling):
            set_rotary_scaling(model, plan.rotary, plan.context_length)
        fitted_types = tuple(map(str, description["fitted_types"]))
        change = description["factors_change_at"]
        if change is not None:
            change = int(change)
        kind = _TYPES[description["compute_type"]]
        _restore(model, description["layers"], arrays, kind)
        model.load_weights(list(arrays.items()), strict=True)
        try_passes(model)
    _check_context(change, plan.context_length, context)
    model.eval()
    if group is not None:
        prepare(model, group, folder.name).apply(model)
    file = GGUFFile.open(folder / METADATA)
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if (
        file.metadata.get("general.architecture") != plan.architecture
        or not isinstance(tokens, list)
        or len(tokens) != plan.vocabulary_size
    ):
        file.close()
        raise ModelFormatError(
            f"{folder / METADATA} belongs to another model; convert it again from its GGUF file"
        )
    return model, plan, fitted_types, file


def _tokenizer_loads(folder: Path, config: dict[str, Any]) -> bool:
    """Return whether mlx-lm can load the tokenizer of a folder with this config."""
    from akunu_py.models.folder_tokenizer import FolderTokenizer

    try:
        FolderTokenizer(folder, config)
    except Exception as error:  # noqa: BLE001 - transformers can raise anything
        _log.info("mlx-lm cannot load the tokenizer of %s: %s", folder, error)
        return False
    return True


def _describe(model: nn.Module) -> tuple[dict[str, dict[str, Any]], dict[str, mx.array]]:
    """Return the form of each layer that is not the model class's own, and their extra arrays."""
    forms: dict[str, dict[str, Any]] = {}
    extra: dict[str, mx.array] = {}
    for path, module in model.named_modules():
        if isinstance(module, Planes):
            forms[path] = {
                "form": "planes",
                "bits": module.bits,
                "group_size": module.group_size,
                "multipliers": list(module.multipliers),
            }
        elif isinstance(module, STOCK_LAYERS):
            forms[path] = {
                "form": "quantized",
                "bits": module.bits,
                "group_size": module.group_size,
                "mode": module.mode,
            }
        elif isinstance(module, Scaled):
            forms[path] = {"form": "scaled"}
        elif isinstance(module, StackedLinear):
            forms[path] = {"form": "stacked", "parts": [_part_rows(part) for part in module.parts]}
            if module.order is not None:
                extra[f"{path}.order"] = module.order
        elif isinstance(module, FrequencyRope):
            forms[path] = {
                "form": "rotary",
                "dims": module.dims,
                "traditional": module.traditional,
                "scale": module.scale,
            }
            extra[f"{path}.wavelengths"] = module.wavelengths
    return forms, extra


def _part_rows(part: nn.Module) -> int:
    """Return the number of outputs of a part of a stacked layer."""
    return int(part.weight.shape[0])


def _restore(
    model: nn.Module,
    forms: dict[str, dict[str, Any]],
    arrays: dict[str, mx.array],
    kind: mx.Dtype,
) -> None:
    """Put layers of the described forms into a fresh model; take extra arrays out of `arrays`."""
    # A stacked layer comes before its parts: their paths begin with its path.
    for path, form in sorted(forms.items()):
        modules = dict(model.named_modules())
        old = modules[path]
        new: nn.Module
        if form["form"] == "rotary":
            wavelengths = arrays.pop(f"{path}.wavelengths")
            if wavelengths.shape != (int(form["dims"]) // 2,):
                raise ValueError(f"{path} has {wavelengths.shape} wavelengths")
            new = FrequencyRope(
                int(form["dims"]),
                wavelengths,
                traditional=bool(form["traditional"]),
                scale=float(form["scale"]),
            )
        elif form["form"] == "stacked":
            rows = [int(count) for count in form["parts"]]
            parts = [nn.Linear(old.weight.shape[1], count, bias=False) for count in rows]
            order = arrays.pop(f"{path}.order", None)
            if old.weight.shape[0] != (sum(rows) if order is None else order.size):
                raise ValueError(f"the parts of {path} do not add up to its size")
            new = StackedLinear(parts, order)
        elif form["form"] == "scaled":
            new = _scaled_layer(path, old)
        else:
            new = _matrix_layer(path, form, old, arrays, kind=kind)
        if "bias" in old:
            new.bias = old.bias
        model.update_modules(tree_unflatten([(path, new)]))


def _scaled_layer(path: str, old: nn.Module) -> Scaled:
    if not isinstance(old, (nn.Linear, SwitchLinear)):
        raise TypeError(f"{path} is not a linear layer")
    shape = old.weight.shape
    row_scale = mx.zeros(shape[:-1])
    if isinstance(old, SwitchLinear):
        experts, rows, cols = shape
        return ScaledSwitchLinear(SwitchLinear(cols, rows, experts, bias=False), row_scale)
    return ScaledLinear(nn.Linear(shape[1], shape[0], bias=False), row_scale)


def _matrix_layer(
    path: str,
    form: dict[str, Any],
    old: nn.Module,
    arrays: dict[str, mx.array],
    *,
    kind: mx.Dtype,
) -> nn.Module:
    if not isinstance(old, MATRIX_LAYERS):
        raise TypeError(f"{path} is not a matrix")
    packed, scales = arrays[f"{path}.weight"], arrays[f"{path}.scales"]
    biases = arrays.get(f"{path}.biases")
    bits, group = int(form["bits"]), int(form["group_size"])
    if group not in _GROUP_SIZES:
        raise ValueError(f"{path} has groups of {group}")
    multipliers = [float(number) for number in form.get("multipliers", ())]
    planes = form["form"] == "planes"
    if planes and (len(multipliers) not in (2, 4) or not all(0 <= m <= 1 for m in multipliers)):
        raise ValueError(f"{path} has planes with the multipliers {multipliers}")
    stored = old.weight.shape[-1] * max(1, len(multipliers))
    lead = old.weight.shape[:-1]
    wanted = {(*lead, stored * bits // 32), (*lead, stored // group)}
    if packed.dtype != mx.uint32 or {packed.shape, scales.shape} != wanted:
        raise ValueError(f"{path} has arrays whose shapes do not fit its model")
    if biases is not None and biases.shape != scales.shape:
        raise ValueError(f"{path} has biases and scales of different shapes")
    if planes:
        if biases is None:
            raise ValueError(f"{path} has no biases")
        form = {"bits": bits, "group_size": group, "multipliers": multipliers}
        return planes_layer(old, packed, scales, biases, form=form)
    mode = str(form["mode"])
    if (biases is None) != (mode != "affine"):
        raise ValueError(f"{path} has the mode {mode!r}, which does not go with its biases")
    return quantized_layer(
        old,
        packed,
        scales,
        biases,
        kind=kind,
        form={"bits": bits, "group_size": group, "mode": mode},
    )


def _config(
    plan: ModelPlan, forms: dict[str, dict[str, Any]], end_ids: list[int], *, stock: bool
) -> dict[str, Any]:
    """Return config.json; a model that mlx-lm cannot load gets a type that mlx-lm refuses."""
    config = {**plan.arguments, "eos_token_id": end_ids}
    if not stock:
        return config | {"model_type": f"akunu_{plan.model.removeprefix(VARIANT_PREFIX)}"}
    layers = {
        path: {key: form[key] for key in ("group_size", "bits", "mode")}
        for path, form in forms.items()
    }
    if layers:
        first = next(iter(layers.values()))
        config["quantization"] = {**first, **layers}
    return config


def _check_context(change: int | None, trained: int, context: int | None) -> None:
    """Raise ConfigError where a context needs other rotary factors than the folder has."""
    if change is not None and ((context or trained) > change) != (trained > change):
        raise ConfigError(
            f"the model rotates positions differently for contexts of up to {change} tokens, and "
            "was converted for longer ones; open its GGUF file, or leave the context out"
        )


def _compute_type(model: nn.Module) -> str:
    """Return the name of the most frequent type of a model's dense arrays and scales."""
    kinds = [
        array.dtype
        for _, array in tree_flatten(model.parameters())
        if mx.issubdtype(array.dtype, mx.floating)
    ]
    return next(name for name, kind in _TYPES.items() if kind == max(kinds, key=kinds.count))


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
