"""A GGUF file's metadata and tensor table to a `ModelPlan`, by the reader of its architecture."""

from collections.abc import Mapping

from akunu_py.errors import ModelFormatError, UnsupportedArchitectureError
from akunu_py.gguf.architectures import architectures, find_reader
from akunu_py.gguf.cursor import MetadataValue
from akunu_py.gguf.keys import Keys
from akunu_py.gguf.parts.decoder import Decoder
from akunu_py.gguf.plan import ModelPlan
from akunu_py.gguf.reader import TensorInfo


def supported_architectures() -> tuple[str, ...]:
    """Return the values of `general.architecture` that akunu can run."""
    return architectures()


def read_plan(
    metadata: Mapping[str, MetadataValue], tensors: Mapping[str, TensorInfo]
) -> ModelPlan:
    """Return the model to build, from `GGUFFile.metadata` and `GGUFFile.tensors`.

    Raises UnsupportedArchitectureError, naming what is not supported, for a sound file of a model
    akunu cannot run, and ModelFormatError, naming key or tensor, for one that is damaged.
    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelFormatError(
            "the metadata has no general.architecture: this is not a language model's file"
        )
    reader = find_reader(architecture)
    if reader is None:
        raise UnsupportedArchitectureError(
            f"the model is of the architecture {architecture[:80]!r}; akunu runs "
            f"{', '.join(supported_architectures())} from GGUF"
        )
    keys = Keys(metadata, architecture)
    if not keys.flag("attention.causal", True):
        raise keys.unsupported("attention.causal", False, "attention to earlier tokens")
    plan = reader(Decoder(keys, tensors))
    keys.check_unused()
    return plan
