"""The door for packages that extend akunu: drafters, verifiers, commands, measurements.

What is here stays, or a release note says what takes its place; everything else in `akunu_py` may
change any day. docs/plug-ins.md is the page for authors, with a line for each name, and
`akunu_py.testing` has toy targets for their tests. akunu's own laboratory imports nothing else.
"""

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from akunu_py.engine.engine import Engine
    from akunu_py.protocols import Drafter, Target, Tokenizer
    from akunu_py.system.errors import AkunuError, ConfigError, ContractError
    from akunu_py.values.types import Draft, GenerationConfig

__all__ = [
    "AkunuError",
    "ConfigError",
    "ContractError",
    "Draft",
    "Drafter",
    "Engine",
    "GenerationConfig",
    "Target",
    "Tokenizer",
]

_MODULES = {
    **dict.fromkeys(("AkunuError", "ConfigError", "ContractError"), "akunu_py.system.errors"),
    **dict.fromkeys(("Draft", "GenerationConfig"), "akunu_py.values.types"),
    **dict.fromkeys(("Drafter", "Target", "Tokenizer"), "akunu_py.protocols"),
    "Engine": "akunu_py.engine.engine",
}
"""Modules of the names. A name is imported when it is first used: help needs no MLX."""


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
