"""How a model is loaded, and in which form its weights are kept."""

import logging
from dataclasses import dataclass
from typing import Literal, get_args

from akunu_py.gguf.quants.forms import Q6KForm
from akunu_py.models.device import has_kernels, on_cpu, physical_memory
from akunu_py.models.rank_split import Group, PlannedGroup
from akunu_py.system.errors import ConfigError

_log = logging.getLogger(__name__)

Weights = Literal["auto", "quantized", "dense"]
ComputeType = Literal["auto", "float16", "bfloat16", "float32"]

_DENSE_SHARE_OF_MEMORY = 0.5
""""auto" chooses dense weights where they take at most this share of the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How to load a model; values are checked at construction, which raises ConfigError."""

    weights: Weights = "auto"
    """As in the file ("quantized"), "dense", or "auto": quantized, but dense float32 on a CPU
    without kernels if they fit, since MLX's own quantized products are very slow."""

    compute_type: ComputeType = "auto"
    """Of activations, scales and dense weights of a GGUF file. "auto" is float32 on the CPU
    backend; elsewhere float16, or bfloat16 where the model does not fit float16."""

    exact_weights: bool | None = None
    """Whether quantized weights of the IQ types are exactly the file's; False takes smaller forms
    close to them (docs/gguf.md). With None they are exact, unless `memory_check` finds that memory
    does not hold them."""

    q6k: Q6KForm = "planes"
    """Q6_K as "planes" (exact, 8 bits a weight) or quantized anew to "8bit" (9 bits)."""

    pre_tokenizer: str | None = None
    """How a byte-level BPE of a GGUF file splits texts, in place of the file's
    `tokenizer.ggml.pre`."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("weights", self.weights, get_args(Weights)),
            ("compute_type", self.compute_type, get_args(ComputeType)),
            ("q6k", self.q6k, get_args(Q6KForm)),
        ):
            if value not in known:
                raise ConfigError(f"{name} is {value!r}; choose from {', '.join(known)}")

    @property
    def fitted(self) -> bool:
        """Whether IQ types get smaller, fitted forms."""
        return self.exact_weights is False


def wants_dense(
    options: LoadOptions, parameters: int, group: Group | PlannedGroup | None = None
) -> bool:
    """Decide between the file's quantized weights and dense ones.

    Each rank of a `group` has about the same share of the model's `parameters`.
    """
    if options.weights != "auto":
        return options.weights == "dense"
    if not on_cpu() or has_kernels():
        return False
    needed = 4 * (parameters if group is None else parameters // group.size())
    fits = needed <= _DENSE_SHARE_OF_MEMORY * physical_memory()
    _log.info(
        "CPU backend: float32 dense weights need %.1f GB and %s; weights are %s",
        needed / 1e9,
        "fit" if fits else "do not fit",
        "dense" if fits else "quantized",
    )
    return fits
