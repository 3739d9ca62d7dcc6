"""Models in folders that akunu wrote of GGUF files, so that they open without a re-layout.

config.json, model*.safetensors   as mlx-lm writes them; mlx-lm loads them too if every layer has
                                  one of MLX's own forms
akunu.json, akunu.safetensors     the forms of all layers, and arrays unknown to mlx-lm
metadata.gguf                     the unchanged metadata, with tokenizer and chat template
tokenizer.json, ...               the tokenizer for mlx-lm, if its kind can be written so
"""

import dataclasses
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_unflatten
from mlx_lm.models.switch_layers import SwitchLinear

from akunu_py.gguf.header import MetadataValue
from akunu_py.gguf.plan import ModelPlan, RotaryScaling
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.device import on_cpu
from akunu_py.models.expansion import expand, num_parameters, wants_dense
from akunu_py.models.folder_settings import check_numbers, read_folder_config, read_json
from akunu_py.models.gguf_model import make_model, set_rotary_scaling
from akunu_py.models.layers import (
    FrequencyRope,
    Scaled,
    ScaledLinear,
    ScaledSwitchLinear,
    StackedLinear,
)
from akunu_py.models.library_errors import errors_of
from akunu_py.models.load_steps import Steps, evaluate, try_passes
from akunu_py.models.loaded_model import LoadedModel, ModelDescription, facts_in_gguf
from akunu_py.models.rank_split import Group, PlannedGroup, prepare
from akunu_py.models.sources.gguf import TYPES, GGUFSource
from akunu_py.models.sources.source import (
    DESCRIPTION,
    EmptyModel,
    FolderSource,
    ModelFigures,
    StoredModel,
)
from akunu_py.models.weight_files import check_weight_file, check_weight_files, folder_tensors
from akunu_py.models.weights import MATRIX_LAYERS, planes_layer, quantized_layer
from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.tokenizers import from_gguf
from akunu_py.tokenizers.gguf_tokenizer import check_vocabulary
from akunu_py.values.load_options import LoadOptions

_GROUP_SIZES = (16, 32, 64, 128)

EXTRA = "akunu.safetensors"
METADATA = "metadata.gguf"
FORMAT = 2
_MODULE_NAME = re.compile(r"(variants\.)?[a-z0-9][a-z0-9_-]*")


class ConvertedSource(FolderSource):
    """A folder with a GGUF model as MLX arrays. It was made without the file's head."""

    has_gguf_rows = True

    def open(
        self, options: LoadOptions, context: int | None, group: Group | None
    ) -> Steps[LoadedModel]:
        self.refuse_gguf_options(options)
        return self._load(options, context, group)

    def _load(
        self, options: LoadOptions, context: int | None, group: Group | None
    ) -> Steps[LoadedModel]:
        plan, description = self._read()
        with self._errors():
            model = self._stored_model(plan, description)
            exact = not description["fitted_types"]
            change = description["factors_change_at"]
            change = None if change is None else int(change)
        _check_context(change, plan.context_length, context)
        model.eval()
        if group is not None:
            prepare(model, group, self.path.name).apply(model)
        metadata = self._metadata(plan)
        tokenizer = from_gguf(metadata)
        yield from evaluate(model)
        parameters = num_parameters(model if group is None else make_model(plan))
        dense = wants_dense(options, parameters, group)
        if dense:
            yield from expand(model)
        elif on_cpu():
            # As with GGUF files: 16 bits are far slower than 32 there.
            model.set_dtype(mx.float32)
        yield from evaluate(model)
        mx.clear_cache()
        found = ModelDescription.of(
            self.path,
            dense=dense,
            exact=exact,
            **facts_in_gguf(plan, metadata, parameters, self.file_bytes),
        )
        return LoadedModel(model, tokenizer, found)

    def _stored_model(self, plan: ModelPlan, description: dict[str, Any]) -> nn.Module:
        """Return the model with its weights still on disk."""
        arrays: dict[str, mx.array] = {}
        for path in (*sorted(self.path.glob("model*.safetensors")), self.path / EXTRA):
            arrays.update(mx.load(str(path)).items())  # type: ignore[union-attr]
        del arrays["akunu.format"]
        model = make_model(plan)
        if isinstance(plan.rotary, RotaryScaling):
            set_rotary_scaling(model, plan.rotary, plan.context_length)
        _restore(model, description["layers"], arrays, TYPES[description["compute_type"]])
        model.load_weights(list(arrays.items()), strict=True)
        try_passes(model)
        return model

    def _metadata(self, plan: ModelPlan) -> Mapping[str, MetadataValue]:
        path = self.path / METADATA
        with GGUFFile.open(path) as file:
            tokens = file.metadata.get("tokenizer.ggml.tokens")
            if (
                file.metadata.get("general.architecture") != plan.architecture
                or not isinstance(tokens, list)
                or len(tokens) != plan.vocabulary_size
            ):
                raise ModelFormatError(
                    f"{path} belongs to another model; convert it again from its GGUF file"
                )
            return file.metadata

    def _read(self) -> tuple[ModelPlan, dict[str, Any]]:
        """Return the plan of the model, without placements, and the description of its layers.

        Raises ModelFormatError for files that are missing or malformed.
        """
        check_weight_files(self.path)
        with self._errors():
            check_weight_file(self.path / EXTRA)
            description = read_json(self.path / DESCRIPTION)
            if description.get("format") != FORMAT:
                raise ValueError(f"{DESCRIPTION} is of another version")
            return _plan_of(description), description

    def _errors(self) -> AbstractContextManager[None]:
        return errors_of(
            f"the converted model in {self.path} does not hold together",
            "convert it again from its GGUF file",
        )

    def empty_model(self, options: LoadOptions, group: PlannedGroup | None) -> EmptyModel:
        plan, description = self._read()
        with self._errors():
            with GGUFFile.open(self.path / METADATA) as file:
                check_vocabulary(file.metadata)
            model = make_model(plan)
            parameters = num_parameters(model)
            facts = facts_in_gguf(plan, file.metadata, parameters, self.file_bytes)
            layers = description["layers"].values()
            planes = max((len(layer.get("multipliers", ())) for layer in layers), default=1)
        dense = wants_dense(options, parameters, group)
        number_bytes = 4 if on_cpu() else 2
        size = parameters * number_bytes if dense else self.file_bytes
        figures = ModelFigures(**facts, dense=dense, weights_bytes=size, number_bytes=number_bytes)
        return EmptyModel(model, figures, 1 if dense else max(1, planes))

    def describe(self) -> StoredModel:
        check_weight_files(self.path)
        config = read_folder_config(self.path)
        return dataclasses.replace(
            GGUFSource(self.path / METADATA).describe(),
            kind="MLX folder, converted from GGUF",
            tensors=tuple(folder_tensors(self.path, config)),
        )


def _plan_of(description: dict[str, Any]) -> ModelPlan:
    """Return the plan, without placements, of a description.

    Raises LookupError, TypeError, ValueError or AttributeError for a malformed description.
    """
    model = str(description["model"])
    # The name decides which module is imported.
    if not _MODULE_NAME.fullmatch(model):
        raise ValueError(f"no model is called {model!r}")
    sizes = ("arguments", "num_layers", "context_length", "vocabulary_size")
    check_numbers({name: description[name] for name in sizes})
    rotary = description["rotary"]
    return ModelPlan(
        architecture=str(description["architecture"]),
        model=model,
        arguments=dict(description["arguments"]),
        placements=(),
        num_layers=int(description["num_layers"]),
        context_length=int(description["context_length"]),
        vocabulary_size=int(description["vocabulary_size"]),
        rotary=None if rotary is None else RotaryScaling(**rotary),
    )


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


def _check_context(change: int | None, trained: int, context: int | None) -> None:
    """Raise ConfigError where a context needs other rotary factors than the folder has."""
    if change is not None and ((context or trained) > change) != (trained > change):
        raise ConfigError(
            f"the model rotates positions differently for contexts of up to {change} tokens, and "
            "was converted for longer ones; open its GGUF file, or leave the context out"
        )
