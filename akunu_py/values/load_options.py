"""How a model is loaded, and the engine around it."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, TypedDict, get_args

from akunu_py.values.option_fields import (
    Count,
    Value,
    check_options,
    option,
)

Weights = Literal["auto", "quantized", "dense"]
ComputeType = Literal["auto", "float16", "bfloat16", "float32"]
Q6KForm = Literal["planes", "8bit"]
KVBits = Literal[4, 8]
"""Bits of a number in quantized KV caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How to load a model; values are checked at construction, which raises ConfigError."""

    weights: Weights = option(
        "auto",
        get_args(Weights),
        "quantized, dense (expanded), or auto: float32 on a CPU without kernels where it fits, "
        "else quantized.",
        metavar="FORM",
        setting=True,
    )
    """MLX's own quantized products are very slow on a CPU."""

    compute_type: ComputeType = option(
        "auto",
        get_args(ComputeType),
        "Compute a GGUF model in float16, bfloat16 or float32. auto: float32 on the CPU backend, "
        "elsewhere float16 where it holds the model's numbers.",
        metavar="TYPE",
        setting=True,
    )
    """Of activations, scales and dense weights."""

    q6k: Q6KForm = option(
        "planes",
        get_args(Q6KForm),
        "Keep Q6_K tensors as exact bit planes (planes), or requantize them (8bit).",
        metavar="FORM",
        setting=True,
    )
    """"planes" has 8 bits a weight, "8bit" 9."""

    pre_tokenizer: str | None = option(
        None,
        Value(str, "a name such as llama-bpe or qwen2"),
        "How the tokenizer of a GGUF file splits texts, where the file does not say so or is "
        "wrong, such as llama-bpe or qwen2.",
        metavar="NAME",
        setting=True,
    )
    """In place of the file's `tokenizer.ggml.pre`."""

    adapter: str | Path | None = option(
        None,
        Value(str | Path, "a path"),
        "Apply a LoRA adapter: a folder of mlx-lm or PEFT, or a GGUF file.",
        metavar="PATH[:SCALE]",
        heading="Model",
        also=("adapter_path", "lora"),
    )
    """See docs/models.md."""

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions(LoadOptions):
    """How to load an engine: its model, what drafts for it, and how it computes."""

    context: int | None = option(
        None,
        Count(2, "2 or more tokens"),
        "Limit prompt and reply together to N tokens.",
        metavar="N",
    )
    kv_bits: KVBits | None = option(
        None,
        get_args(KVBits),
        "Quantize the KV cache, for long contexts in less memory.",
        metavar="4|8",
        heading="Model",
    )
    reproducible: bool = option(
        False,
        bool,
        "Compute all passes at one size, so that drafting never changes a token by rounding. For "
        "GPUs: on a CPU akunu's kernels mostly rule that out. `akunu tune` says what it costs.",
        heading="Model",
        rare=True,
    )
    """It holds as long as a kernel's result for a row depends only on shapes and on what the row
    sees (docs/decisions.md)."""

    memory: str | Path | None = option(
        None,
        Value(str | Path, "a path"),
        "Keep replies here, and draft from them in later runs.",
        metavar="FOLDER",
        setting=True,
    )
    """See docs/drafting.md."""

    draft_model: str | Path | None = option(
        None,
        Value(str | Path, "a path"),
        "Draft with a smaller model of its vocabulary.",
        metavar="MODEL",
    )
    heads: str | Path | None = option(
        None,
        Value(str | Path, "a path"),
        "Draft with a prediction head: the model's own, that of a file, folder or hf:NAME, or "
        "auto: one that lies near. Left out: own with --drafter mtp and, but for measurements, "
        "with the default model, else none.",
        metavar="auto|own|none|PATH",
        heading="Drafting",
    )
    """See docs/heads.md; "auto" and "none" are for commands."""

    wired: bool = option(True, bool)
    """On a Mac: have macOS keep the weights and 1 GB more in memory from the first reply on."""

    tool_parser: str | None = option(
        None,
        Value(str, "the name of a parser"),
        "Read tool calls with this parser of mlx-lm, such as kimi_k3, where the chat template does "
        "not show how they look, or shows it wrong.",
        metavar="NAME",
        heading="Model",
        rare=True,
    )
    """See docs/tools.md."""

    pooling: Literal["last", "mean"] | None = option(
        None,
        ("last", "mean"),
        "Make embeddings of the last state of a text or of the mean of all, also with a model that "
        "was not made for it. Left out: as the model's files say.",
        metavar="last|mean",
        heading="Model",
        rare=True,
    )
    """See docs/python.md."""

    def of_model(self) -> LoadOptions:
        """Return the options of the model alone."""
        return LoadOptions(
            **{field.name: getattr(self, field.name) for field in fields(LoadOptions)}
        )


class EngineKeywords(TypedDict, total=False):
    """The fields of `EngineOptions` as keyword arguments, for type checkers."""

    weights: Weights
    compute_type: ComputeType
    q6k: Q6KForm
    pre_tokenizer: str | None
    adapter: str | Path | None
    context: int | None
    kv_bits: KVBits | None
    reproducible: bool
    memory: str | Path | None
    draft_model: str | Path | None
    heads: str | Path | None
    wired: bool
    tool_parser: str | None
    pooling: Literal["last", "mean"] | None
