"""Models in MLX folders; `akunu_py.models.mlx_folder` makes them with mlx-lm."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import mlx.core as mx
from mlx.utils import tree_flatten

from akunu_py.models import mlx_folder
from akunu_py.models.device import has_kernels, on_cpu
from akunu_py.models.expansion import num_parameters
from akunu_py.models.folder_settings import folder_context, read_folder_config
from akunu_py.models.folder_tokenizer import FolderTokenizer
from akunu_py.models.load_options import LoadOptions, wants_dense
from akunu_py.models.load_steps import Steps
from akunu_py.models.loaded_model import LoadedModel, ModelDescription
from akunu_py.models.ranks.split import Group, PlannedGroup
from akunu_py.models.sources.source import EmptyModel, FolderSource, ModelFigures, StoredModel
from akunu_py.models.stored_tensors import folder_tensors
from akunu_py.models.weight_files import check_weight_files
from akunu_py.protocols import Tokenizer


class MLXFolderSource(FolderSource):
    """A folder with config.json, model*.safetensors and the files of a tokenizer."""

    heads: ClassVar[Literal["gguf", "stored"] | None] = "stored"

    def open(
        self,
        options: LoadOptions,
        context: int | None,  # noqa: ARG002 - mlx-lm's classes rotate as their configs say
        group: Group | None,
    ) -> Steps[LoadedModel]:
        self.refuse_gguf_options(options)
        config = read_folder_config(self.path)
        # Before transformers sees the config, of which it would make a class of its own.
        mlx_folder.check_folder(self.path, config)
        tokenizer = FolderTokenizer(self.path, mlx_folder.read_whole_config(self.path))
        return self._load(config, tokenizer, options, group)

    def _load(
        self,
        config: dict[str, Any],
        tokenizer: Tokenizer,
        options: LoadOptions,
        group: Group | None,
    ) -> Steps[LoadedModel]:
        file_bytes = sum(path.stat().st_size for path in self.path.glob("model*.safetensors"))
        quantized = _is_quantized(config)
        # Assumes codes of 4 bits, two weights a byte, if the folder is quantized, else 16 bits.
        assumed = file_bytes * 2 if quantized else file_bytes // 2
        dense = wants_dense(options, assumed, group)
        model, parameters = yield from mlx_folder.load_folder_model(
            self.path, config, dense=dense, group=group
        )
        description = ModelDescription.of(
            self.path,
            dense=dense or not quantized,
            architecture=config["model_type"],
            parameters=parameters,
            context=folder_context(config),
            file_bytes=file_bytes,
        )
        return LoadedModel(model, tokenizer, description)

    def empty_model(self, options: LoadOptions, group: PlannedGroup | None) -> EmptyModel:
        config = read_folder_config(self.path)
        model = mlx_folder.open_folder_model(self.path, config)
        parameters = num_parameters(model)
        dense = wants_dense(options, parameters, group) or not _is_quantized(config)
        number_bytes = 4 if on_cpu() and (dense or has_kernels()) else 2
        # Files may hold what the model is loaded without, such as a head.
        size = (
            parameters * number_bytes
            if dense
            else sum(_loaded_bytes(array) for _, array in tree_flatten(model.parameters()))
        )
        figures = ModelFigures(
            architecture=config["model_type"],
            parameters=parameters,
            dense=dense,
            context=folder_context(config),
            file_bytes=self.file_bytes,
            weights_bytes=size,
            fitted_bytes=size,
            number_bytes=number_bytes,
        )
        return EmptyModel(model, figures)

    def describe(self) -> StoredModel:
        check_weight_files(self.path)
        config = read_folder_config(self.path)
        tokenizer = FolderTokenizer(self.path, config)
        return StoredModel(
            kind="MLX folder",
            tokenizer="tokenizer.json" if (self.path / "tokenizer.json").is_file() else "other",
            vocabulary=tokenizer.vocabulary_size,
            chat_template=tokenizer.has_chat_template,
            tensors=tuple(folder_tensors(self.path, config)),
        )


def _is_quantized(config: Mapping[str, Any]) -> bool:
    return "quantization" in config or "quantization_config" in config


def _loaded_bytes(array: mx.array) -> int:
    """Return the bytes of an array in memory: kernels compute in float32."""
    widened = on_cpu() and has_kernels() and mx.issubdtype(array.dtype, mx.floating)
    return 4 * array.size if widened else array.nbytes
