"""How the makers of a model say that its replies should be sampled."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from akunu_py.system.errors import ConfigError
from akunu_py.values.generation_config import GenerationConfig, SamplingConfig
from akunu_py.values.option_fields import options_of

_OPTIONS = {declared.name: declared for declared in options_of(SamplingConfig)}
_SIX_DIGITS = ".6g"
"""As many as float32 holds for certain: GGUF has 0.7 as 0.699999988."""

_NO_LIMIT = -1
"""What vLLM and llama.cpp write for a `top_k` of all tokens."""


class Recommended(NamedTuple):
    """Sampling options that a model's files recommend; empty where they recommend none."""

    values: Mapping[str, float] = {}
    """Checked values, by the names of `SamplingConfig`."""

    origin: str = ""
    """Where they stand: a file, or the keys of one."""

    unused: tuple[str, ...] = ()
    """Entries that are not used, since their values are out of range."""

    def fill(self, config: GenerationConfig, given: Collection[str]) -> GenerationConfig:
        """Return a configuration with these values for all options but those `given`.

        It stays as it is where a rule of drafts that was chosen excludes them.
        """
        missing: dict[str, Any] = {k: v for k, v in self.values.items() if k not in given}
        try:
            return dataclasses.replace(config, **missing)
        except ConfigError:
            return config

    def __str__(self) -> str:
        said = ", ".join(f"{name} {value:g}" for name, value in self.values.items())
        unused = f"; not used: {', '.join(self.unused)}" if self.unused else ""
        return f"{said or 'nothing of use'} ({self.origin}{unused})" if self.origin else ""


NO_RECOMMENDATION = Recommended()


def recommended(
    entries: Mapping[str, object], names: Mapping[str, str], origin: str
) -> Recommended:
    """Return the values among the entries of a file.

    `names` has the options that entries mean. A file that says how to draw, but not at which
    temperature, means 1, as in transformers.
    """
    values: dict[str, Any] = {}
    unused = []
    for entry, name in names.items():
        if (value := entries.get(entry)) is None:
            continue
        if isinstance(value, float):
            value = float(format(value, _SIX_DIGITS))
        if name == "top_k" and value == _NO_LIMIT:
            value = 0
        try:
            _OPTIONS[name].kind.check(name, value)
        except ConfigError:
            unused.append(f"{entry} {value!r:.40}")
        else:
            values[name] = value
    draws = entries.get("do_sample")
    says_temperature = any(
        name == "temperature" and entries.get(entry) is not None for entry, name in names.items()
    )
    if draws is False:
        values["temperature"] = 0.0
    elif not says_temperature and (
        draws is True or any(_OPTIONS[name].group == "filter" for name in values)
    ):
        values["temperature"] = 1.0
    found = values or unused
    return Recommended(values, origin, tuple(unused)) if found else NO_RECOMMENDATION
