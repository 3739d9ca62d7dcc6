"""How a model is loaded, and the engine around it."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict, get_args

from akunu_py.system.errors import ConfigError

Weights = Literal["auto", "quantized", "dense"]
ComputeType = Literal["auto", "float16", "bfloat16", "float32"]
Q6KForm = Literal["planes", "8bit"]


class KVBits(NamedTuple):
    """How KV caches are quantized."""

    bits: int
    """Of a number: 4 or 8."""

    start: int = 0
    """The first row that is quantized; those before it stay in full precision."""

    def __str__(self) -> str:
        return f"{self.bits} from row {self.start:,}" if self.start else str(self.bits)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How to load a model; values are checked at construction, which raises ConfigError."""

    weights: Weights = "auto"
    """"quantized" as in the file, "dense", or "auto": quantized, but dense float32 on a CPU without
    kernels if they fit, since MLX's own quantized products are very slow."""

    compute_type: ComputeType = "auto"
    """Of activations, scales and dense weights of a GGUF file. "auto" is float32 on the CPU
    backend; elsewhere float16, or bfloat16 where the model does not fit float16."""

    exact_weights: bool | None = None
    """Whether quantized weights of the IQ types are exactly the file's; False takes smaller forms
    close to them (docs/gguf.md). With None they are exact, unless memory does not hold them."""

    q6k: Q6KForm = "planes"
    """Q6_K as "planes" (exact, 8 bits a weight) or quantized anew to "8bit" (9 bits)."""

    pre_tokenizer: str | None = None
    """How a byte-level BPE of a GGUF file splits texts, in place of the file's
    `tokenizer.ggml.pre`."""

    adapter: str | Path | None = None
    """LoRA adapter, as PATH or PATH:SCALE: a folder of mlx-lm's or PEFT's, or a GGUF file
    (docs/models.md)."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions(LoadOptions):
    """How to load an engine: its model, what drafts for it, and how it computes."""

    context: int | None = None
    """Limit of the context, in tokens."""

    kv_bits: int | None = None
    """4 or 8 to quantize the KV cache."""

    kv_start: int = 0
    """Rows of the KV cache that stay in full precision, from the first; later ones are quantized
    as `kv_bits` says."""

    reproducible: bool = False
    """Give every position a fixed place in passes of one size. Drafting then changes no token as
    long as a kernel's result for a row depends only on shapes and on what the row sees
    (docs/decisions.md). `akunu tune` measures the price."""

    memory: str | Path | None = None
    """Folder for the texts that `auto` drafts from (docs/drafting.md)."""

    draft_model: str | Path | None = None
    """Smaller model with the same vocabulary to draft with (lab/docs/methods.md)."""

    heads: str | Path | None = None
    """"own" to draft with the model's own prediction head, or the path of a file or folder that has
    one (docs/drafting.md)."""

    counts: str | Path | None = None
    """File of `akunu counts fit`, for the drafter `corpus`."""

    wired: bool = True
    """On a Mac: have macOS keep the weights and 1 GB more in memory from the first reply on."""

    tool_parser: str | None = None
    """mlx-lm's name of the parser that reads tool calls, in place of the format that the chat
    template shows (docs/tools.md)."""

    @property
    def cache_bits(self) -> KVBits | None:
        """How the caches are quantized; None for not at all.

        Raises ConfigError for a start that cannot be.
        """
        whole = isinstance(self.kv_start, int) and not isinstance(self.kv_start, bool)
        if not whole or self.kv_start < 0:
            raise ConfigError(f"kv_start is {self.kv_start!r}; give 0 or more tokens")
        if self.kv_bits is None:
            if self.kv_start:
                raise ConfigError("kv_start says where kv_bits begins; give kv_bits 8 or 4 as well")
            return None
        return KVBits(self.kv_bits, self.kv_start)

    def of_model(self) -> LoadOptions:
        """Return the options of the model alone."""
        return LoadOptions(
            **{field.name: getattr(self, field.name) for field in fields(LoadOptions)}
        )


class EngineKeywords(TypedDict, total=False):
    """The fields of `EngineOptions` as keyword arguments, for type checkers."""

    weights: Weights
    compute_type: ComputeType
    exact_weights: bool | None
    q6k: Q6KForm
    pre_tokenizer: str | None
    adapter: str | Path | None
    context: int | None
    kv_bits: int | None
    kv_start: int
    reproducible: bool
    memory: str | Path | None
    draft_model: str | Path | None
    heads: str | Path | None
    counts: str | Path | None
    wired: bool
    tool_parser: str | None
