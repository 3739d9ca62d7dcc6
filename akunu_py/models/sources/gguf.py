"""Models in GGUF files."""

import logging
from pathlib import Path

import mlx.core as mx
from mlx import nn
from mlx_lm.models.switch_layers import SwitchLinear

from akunu_py.gguf.architectures import read_plan
from akunu_py.gguf.header import MetadataValue
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import GGUFFile
from akunu_py.models.device import on_cpu
from akunu_py.models.expansion import num_parameters, wants_dense
from akunu_py.models.gguf_model import build_gguf_model, make_model, overflows
from akunu_py.models.load_steps import Steps
from akunu_py.models.loaded_model import LoadedModel, ModelDescription, facts_in_gguf
from akunu_py.models.rank_split import Group, PlannedGroup, on_any_rank
from akunu_py.models.sources.source import EmptyModel, ModelFigures, ModelSource, StoredModel
from akunu_py.models.weight_files import gguf_tensors
from akunu_py.models.weights import Float16OverflowError, WeightReader, bytes_in_forms, forms_of
from akunu_py.protocols import Tokenizer
from akunu_py.system.errors import ConfigError
from akunu_py.tokenizers import from_gguf
from akunu_py.tokenizers.gguf_tokenizer import check_vocabulary
from akunu_py.values.load_options import LoadOptions

_log = logging.getLogger(__name__)

TYPES = {"float16": mx.float16, "bfloat16": mx.bfloat16, "float32": mx.float32}

_TRIED_ON_CPU = 50_000_000
"""Parameters of the largest model whose activations are checked on the CPU backend."""


class GGUFSource(ModelSource):
    """A GGUF file, or the first of several."""

    has_gguf_rows = True

    def open(
        self, options: LoadOptions, context: int | None, group: Group | None
    ) -> Steps[LoadedModel]:
        file = GGUFFile.open(self.path)
        try:
            plan = read_plan(file.metadata, file.tensors)
            tokenizer = from_gguf(file.metadata, pre_tokenizer=options.pre_tokenizer)
        except BaseException:
            file.close()
            raise
        if file.left_out:
            _log.warning("%s: pictures and sounds are left out; akunu reads text", self.path.name)
        return _load(file, plan, tokenizer, options, context=context, group=group)

    def empty_model(self, options: LoadOptions, group: PlannedGroup | None) -> EmptyModel:
        with GGUFFile.open(self.path) as file:
            plan = read_plan(file.metadata, file.tensors)
            check_vocabulary(file.metadata)
            dense = _is_dense(file, options, group)
            number_bytes = compute_types(file, plan, options, on_gpu=not on_cpu())[0].size
            used = {name for placement in plan.placements for name in placement.tensors}
            tensors = [file.tensors[name] for name in used]
            facts = facts_in_gguf(plan, file.metadata, file.num_weights, file.nbytes)
        forms = forms_of(tensors, number_bytes, dense=dense, q6k=options.q6k)
        figures = ModelFigures(
            **facts,
            dense=dense,
            weights_bytes=bytes_in_forms(tensors, forms, number_bytes),
            number_bytes=number_bytes,
        )
        planes = max((form.codes_per_weight for form in forms), default=1)
        return EmptyModel(make_model(plan), figures, planes)

    def describe(self) -> StoredModel:
        with GGUFFile.open(self.path) as file:
            found = file.metadata
            parts = len(file.paths)
            tensors = tuple(gguf_tensors(file))
        names = (_text(found.get(f"tokenizer.ggml.{key}")) for key in ("model", "pre"))
        tokens = found.get("tokenizer.ggml.tokens")
        return StoredModel(
            kind="GGUF" if parts == 1 else f"GGUF in {parts} files",
            tokenizer=" ".join(filter(None, names)),
            vocabulary=len(tokens) if isinstance(tokens, list) else 0,
            chat_template=_text(found.get("tokenizer.chat_template")) is not None,
            tensors=tensors,
        )

    def gguf_plan(self, adapter: Path) -> tuple[ModelPlan, dict[str, tuple[int, ...]]]:  # noqa: ARG002
        with GGUFFile.open(self.path) as file:
            plan = read_plan(file.metadata, file.tensors)
            return plan, {name: info.shape for name, info in file.tensors.items()}


def _text(value: MetadataValue | None) -> str | None:
    return value if isinstance(value, str) else None


def _is_dense(file: GGUFFile, options: LoadOptions, group: Group | PlannedGroup | None) -> bool:
    return wants_dense(options, file.num_weights, group) or not file.is_quantized


def _load(
    file: GGUFFile,
    plan: ModelPlan,
    tokenizer: Tokenizer,
    options: LoadOptions,
    *,
    context: int | None,
    group: Group | None,
) -> Steps[LoadedModel]:
    with file:
        dense = _is_dense(file, options, group)
        model = yield from build(file, plan, options, dense=dense, context=context, group=group)
        description = ModelDescription.of(
            file.path,
            dense=dense,
            exact=dense or is_exact(file, options),
            **facts_in_gguf(plan, file.metadata, file.num_weights, file.nbytes),
        )
    _log.info("%s: %s", description.name, description.weights_text)
    return LoadedModel(model, tokenizer, description)


def is_exact(file: GGUFFile, options: LoadOptions) -> bool:
    """Return whether all quantized weights would be the file's."""
    kinds = {info.type.name for info in file.tensors.values()}
    return options.q6k == "planes" or "Q6_K" not in kinds


def build(
    file: GGUFFile,
    plan: ModelPlan,
    options: LoadOptions,
    *,
    dense: bool,
    context: int | None,
    group: Group | None = None,
    for_gpu: bool = False,
) -> Steps[nn.Module]:
    """Build the model in the first type that can hold its numbers.

    With `for_gpu` it is the type for a GPU, wherever the model is built.
    """
    on_gpu = not on_cpu()
    kinds = compute_types(file, plan, options, on_gpu=on_gpu or for_gpu)
    for kind in kinds:
        reader = WeightReader(file, kind, dense, options.q6k)
        model = None
        try:
            model = yield from build_gguf_model(plan, reader, context=context, group=group)
        except Float16OverflowError as error:
            if len(kinds) == 1:
                raise ConfigError(
                    f"{file.path} has numbers in {error} that float16 cannot hold; choose another "
                    "compute type"
                ) from None
            _log.info("%s does not fit float16", error)
        last = kind is kinds[-1]
        # Each rank has read its own part alone, and all need the same type.
        if (not last and on_any_rank(group, model is None)) or model is None:
            continue
        dense_experts = any(isinstance(part, SwitchLinear) for part in model.modules())
        if dense_experts and not (on_gpu or for_gpu) and kind != mx.float32:
            raise ConfigError(
                "MLX's CPU backend multiplies the experts of a mixture only in float32; leave "
                "compute_type out"
            )
        # On the CPU backend a pass in 16 bits takes minutes, so only small models are tried there.
        tried = on_gpu or num_parameters(model) <= _TRIED_ON_CPU
        if last or not tried:
            return model
        if not on_any_rank(group, overflows(model, plan.vocabulary_size, plan.context_length)):
            return model
        _log.info("the model's activations do not fit %s", kind)
        del model
        mx.clear_cache()
    raise AssertionError("the last type is taken as it is")


def compute_types(
    file: GGUFFile, plan: ModelPlan, options: LoadOptions, *, on_gpu: bool
) -> list[mx.Dtype]:
    """Return the types to compute in, the first to try at the beginning.

    The CPU backend is many times slower in 16 bits than in 32. On a GPU float16 suits GGUF's
    scales, which are float16; bfloat16 would round them.
    """
    if options.compute_type != "auto":
        return [TYPES[options.compute_type]]
    if not on_gpu:
        return [mx.float32]
    kinds = {info.type.name for info in file.tensors.values() if len(info.shape) > 1}
    if kinds == {"F32"}:
        return [mx.float32]
    if plan.wide_range or kinds <= {"F32", "BF16"}:
        return [mx.bfloat16]
    return [mx.float16, mx.bfloat16]
