"""Models in folders that akunu wrote of GGUF files; `akunu_py.models.converted` reads those."""

import dataclasses

import mlx.core as mx

from akunu_py.models.converted import load_converted
from akunu_py.models.converted_plan import METADATA, read_converted_plan
from akunu_py.models.device import on_cpu
from akunu_py.models.expansion import expand, num_parameters
from akunu_py.models.folder_settings import read_folder_config
from akunu_py.models.gguf_model import make_model
from akunu_py.models.load_options import LoadOptions, wants_dense
from akunu_py.models.load_steps import Steps, evaluate
from akunu_py.models.loaded_model import LoadedModel, ModelDescription
from akunu_py.models.ranks.split import Group, PlannedGroup
from akunu_py.models.sources.gguf import GGUFSource
from akunu_py.models.sources.source import EmptyModel, FolderSource, ModelFigures, StoredModel
from akunu_py.models.stored_tensors import folder_tensors
from akunu_py.models.weight_files import check_weight_files
from akunu_py.tokenizers import from_gguf


class ConvertedSource(FolderSource):
    """A folder with a GGUF model as MLX arrays. It was made without the file's head."""

    def open(
        self, options: LoadOptions, context: int | None, group: Group | None
    ) -> Steps[LoadedModel]:
        self.refuse_gguf_options(options)
        return self._load(options, context, group)

    def _load(
        self, options: LoadOptions, context: int | None, group: Group | None
    ) -> Steps[LoadedModel]:
        model, plan, fitted_types, file = load_converted(self.path, context, group)
        with file:
            tokenizer = from_gguf(file.metadata)
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
        description = ModelDescription.of(
            self.path,
            dense=dense,
            fitted_types=fitted_types,
            architecture=plan.architecture,
            parameters=parameters,
            context=plan.context_length,
            file_bytes=self.file_bytes,
        )
        return LoadedModel(model, tokenizer, description)

    def empty_model(self, options: LoadOptions, group: PlannedGroup | None) -> EmptyModel:
        plan, planes = read_converted_plan(self.path)
        model = make_model(plan)
        parameters = num_parameters(model)
        dense = wants_dense(options, parameters, group)
        number_bytes = 4 if on_cpu() else 2
        size = parameters * number_bytes if dense else self.file_bytes
        figures = ModelFigures(
            architecture=plan.architecture,
            parameters=parameters,
            dense=dense,
            context=plan.context_length,
            file_bytes=self.file_bytes,
            weights_bytes=size,
            fitted_bytes=size,
            number_bytes=number_bytes,
        )
        return EmptyModel(model, figures, 1 if dense else planes)

    def describe(self) -> StoredModel:
        check_weight_files(self.path)
        config = read_folder_config(self.path)
        return dataclasses.replace(
            GGUFSource(self.path / METADATA).describe(),
            kind="MLX folder, converted from GGUF",
            tensors=tuple(folder_tensors(self.path, config)),
        )
