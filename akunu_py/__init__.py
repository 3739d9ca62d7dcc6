"""akunu: quantized language models on a Mac, faster and with the same output.

from akunu_py import Engine
engine = Engine.load("model.gguf")
print(engine.chat([{"role": "user", "content": "Hello"}]).text)

"""

from typing import TYPE_CHECKING

from akunu_py.errors import (
    AkunuError,
    ConfigError,
    ContextOverflowError,
    ContractError,
    EngineStateError,
    ModelFormatError,
    RollbackError,
    UnsupportedArchitectureError,
    UnsupportedQuantizationError,
)
from akunu_py.types import (
    DecodeStats,
    Draft,
    Drafter,
    GenerationConfig,
    GenerationResult,
    Message,
    StepStats,
    StreamEvent,
    Target,
    Tokenizer,
    Verification,
)

if TYPE_CHECKING:
    from akunu_py.engine.engine import Engine
    from akunu_py.engine.reply import ReplyStream

__version__ = "0.1.0"

__all__ = [
    "AkunuError",
    "ConfigError",
    "ContextOverflowError",
    "ContractError",
    "DecodeStats",
    "Draft",
    "Drafter",
    "Engine",
    "EngineStateError",
    "GenerationConfig",
    "GenerationResult",
    "Message",
    "ModelFormatError",
    "ReplyStream",
    "RollbackError",
    "StepStats",
    "StreamEvent",
    "Target",
    "Tokenizer",
    "UnsupportedArchitectureError",
    "UnsupportedQuantizationError",
    "Verification",
    "__version__",
]


def __getattr__(name: str) -> object:
    """Import the engine when it is first asked for: MLX and mlx-lm take over a second."""
    if name == "Engine":
        from akunu_py.engine.engine import Engine  # noqa: PLC0415

        return Engine
    if name == "ReplyStream":
        from akunu_py.engine.reply import ReplyStream  # noqa: PLC0415

        return ReplyStream
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
