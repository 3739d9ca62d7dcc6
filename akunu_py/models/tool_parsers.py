"""mlx-lm's parsers of tool calls, by name."""

import importlib

import mlx_lm

from akunu_py.models.whole_mlx_lm import submodules
from akunu_py.system.errors import ConfigError
from akunu_py.tool_calls.given_reader import GivenReader

_PACKAGE = "tool_parsers"


def named_parser(name: str) -> GivenReader:
    """Return a parser of the installed mlx-lm; raise ConfigError for a name that it lacks."""
    known = submodules(_PACKAGE)
    if name not in known:
        raise ConfigError(
            f"tool_parser is {name!r:.60}; the installed mlx-lm has {', '.join(sorted(known))}"
        )
    module = importlib.import_module(f"{mlx_lm.__name__}.{_PACKAGE}.{name}")
    start, end = module.tool_call_start, module.tool_call_end
    return GivenReader(f"mlx-lm's parser {name}", start, end or "", module.parse_tool_call)
