"""Writes GGUF models as folders; `akunu_py.models.sources.converted` says what these hold."""

import dataclasses
import json
import logging
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn

from akunu_py.gguf.header import MetadataValue, write_metadata
from akunu_py.gguf.plan import ModelPlan, RotaryFactors, RotaryScaling
from akunu_py.models.expansion import STOCK_LAYERS, number_type
from akunu_py.models.layers import (
    FrequencyRope,
    Planes,
    Scaled,
    StackedLinear,
)
from akunu_py.models.sources.converted import EXTRA, FORMAT, METADATA
from akunu_py.models.sources.gguf import TYPES
from akunu_py.models.sources.source import DESCRIPTION
from akunu_py.models.variants import VARIANT_PREFIX
from akunu_py.system.errors import ConfigError
from akunu_py.tokenizers import from_gguf
from akunu_py.tokenizers.hugging_face import tokenizer_files

_log = logging.getLogger(__name__)


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
    exact: bool = True,
) -> bool:
    """Write a model built from a GGUF file into a new folder; return whether mlx-lm loads it too.

    `exact` says whether its quantized weights are the file's. The folder gets its name last, so
    that it is complete or absent. Raises ConfigError for a folder that exists or cannot be written.
    """
    check_new(folder)
    # Named before it is made: an interrupt in between would leave a folder that nobody knows.
    part = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}")
    try:
        part.mkdir(parents=True)
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
                "fitted_types": [] if exact else ["Q6_K"],
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
        shutil.rmtree(part, ignore_errors=True)
    return read_by_mlx_lm


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
            forms[path] = {"form": "stacked", "parts": [len(part.weight) for part in module.parts]}
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


def _compute_type(model: nn.Module) -> str:
    kind = number_type(model)
    return next(name for name, known in TYPES.items() if known == kind)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
