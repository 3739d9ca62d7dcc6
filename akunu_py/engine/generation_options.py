"""The fields of a `GenerationConfig` as keyword arguments."""

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any

from akunu_py.system.errors import ConfigError
from akunu_py.values.constraint import Constraint
from akunu_py.values.generation_config import GenerationConfig, GenerationOptions
from akunu_py.values.option_fields import find_option, options_of


def with_options(config: GenerationConfig, options: GenerationOptions) -> GenerationConfig:
    """Return a configuration with some fields replaced; raises ConfigError for unknown names."""
    names = [declared.name for declared in options_of(GenerationConfig)]
    fields: dict[str, Any] = {}
    forms: list[str] = []
    for name, value in options.items():
        if name in _FORMS:
            fields["constraint"] = _FORMS[name](value)
            forms.append(name)
        elif name in names:
            forms += ["constraint"] * (name == "constraint")
            fields[name] = value
        else:
            meant = find_option(options_of(GenerationConfig), name)
            near = [meant.name] if meant else difflib.get_close_matches(name, (*names, *_FORMS), 1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(names)}"
            raise ConfigError(f"there is no option named {name}{hint}")
    if len(forms) > 1:
        raise ConfigError(f"a reply has one form; give one of {' and '.join(forms)}")
    return dataclasses.replace(config, **fields)


_FORMS: Mapping[str, Callable[[Any], Constraint]] = {
    "json_schema": Constraint.json_schema,
    "regex": Constraint.regex,
    "grammar": Constraint.grammar,
    "choices": Constraint.choices,
}
