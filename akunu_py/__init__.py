"""akunu: quantized language models run locally with MLX, faster and with the same output.

from akunu_py import Engine
engine = Engine.load("model.gguf")
print(engine.chat([{"role": "user", "content": "Hello"}]).text)

"""

import importlib

from akunu_py.system.errors import (
    AkunuError,
    ConfigError,
    ContextOverflowError,
    ContractError,
    EngineStateError,
    MemoryLimitError,
    ModelFormatError,
    RollbackError,
    UnsupportedArchitectureError,
    UnsupportedQuantizationError,
)

# Importing typing would double the time of this import, in which Ctrl-C shows a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from akunu_py.engine.admission import ReplyStream
    from akunu_py.engine.engine import Engine
    from akunu_py.protocols import Drafter, Target, Tokenizer
    from akunu_py.values.messages import Message, TextPart, Tool, ToolCall
    from akunu_py.values.types import (
        DecodeStats,
        Draft,
        GenerationConfig,
        GenerationResult,
        StepStats,
        StreamEvent,
        Verification,
    )

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
    "MemoryLimitError",
    "Message",
    "ModelFormatError",
    "ReplyStream",
    "RollbackError",
    "StepStats",
    "StreamEvent",
    "Target",
    "TextPart",
    "Tokenizer",
    "Tool",
    "ToolCall",
    "UnsupportedArchitectureError",
    "UnsupportedQuantizationError",
    "Verification",
    "__version__",
]


_MODULES = {
    "Engine": "akunu_py.engine.engine",
    "ReplyStream": "akunu_py.engine.admission",
    **dict.fromkeys(("Message", "TextPart", "Tool", "ToolCall"), "akunu_py.values.messages"),
    **dict.fromkeys(("Drafter", "Target", "Tokenizer"), "akunu_py.protocols"),
}
"""Modules of the names that are not in `akunu_py.values.types`."""


def __getattr__(name: str) -> object:
    """Import a name when it is first used.

    The engine needs MLX and mlx-lm, which take over a second to import. The values and protocols
    would take a fifth of the time of `akunu --version`.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_MODULES.get(name, "akunu_py.values.types"))
    value: object = getattr(module, name)
    globals()[name] = value
    return value
