"""The config.json of a head in a folder of its own, whose values are checked as they are read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from akunu_py.models.folder_settings import check_numbers, read_settings
from akunu_py.models.library_errors import from_library
from akunu_py.system.errors import ModelFormatError, UnsupportedArchitectureError

_MAX_SIZE = 1 << 24
_ROTATIONS = ("default", "linear", "llama3", "yarn")

_NOT_RUN: Mapping[str, tuple[object, ...]] = {
    "rope_is_neox_style": (None, True),
    "partial_rotary_factor": (None, 1),
    "rope_parameters.partial_rotary_factor": (None, 1),
    "rope_scaling.partial_rotary_factor": (None, 1),
    "attention_value_scale": (None, 1),
    "offset_rms_norm": (None, False),
    "attention_sink_bias": (None, False),
    "log_snr_conditioning": (None, False),
    "parallel_drafting": (None, False),
}
"""Entries that change the forward pass of a layer -> the values with which they do not."""


class HeadConfig:
    """The values of a config.json, by names in which dots lead into its objects.

    Methods raise ModelFormatError, naming file and value, for a value of another kind.
    """

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        self.path = path
        self._content = content

    def error(self, name: str, value: object, wanted: str) -> ModelFormatError:
        """Return the error for a value; `wanted` says what should be there."""
        return ModelFormatError(
            f"{self.path} has {str(value)[:80]!r} for {name}, not {wanted}; use a head of this "
            "model, or download it again"
        )

    @classmethod
    def next_to(cls, path: Path, kind: str) -> "HeadConfig":
        """Return the config beside a file with a head of a kind, which a message names.

        Raises ModelFormatError where there is none.
        """
        place = path.parent / "config.json"
        if not place.is_file():
            raise ModelFormatError(
                f"{path} is {kind} head, and there is no {place}; put the config.json of the head "
                "beside it"
            )
        return cls(place, read_settings(path.parent))

    def has_beside(self, name: str) -> bool:
        """Return whether a file lies beside it."""
        return (self.path.parent / name).exists()

    def value(self, name: str) -> Any:
        """Return a value of any kind; None where there is none."""
        value: Any = self._content
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return whether an entry is true."""
        value = self.value(name)
        if value is None:
            value = default
        if not isinstance(value, bool):
            raise self.error(name, value, "true or false")
        return value

    def integer(
        self, name: str, default: int | None = None, *, low: int = 1, high: int = _MAX_SIZE
    ) -> int:
        """Return a whole number from `low` to `high`."""
        value = self.value(name)
        if value is None:
            value = default
        if type(value) is not int or not low <= value <= high:
            raise self.error(name, value, f"a whole number from {low} to {high}")
        return value

    def number(self, name: str, default: float, *, high: float) -> float:
        """Return a number between 0 and `high`."""
        value = self.value(name)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < high:
            raise self.error(name, value, f"a number between 0 and {high:g}")
        return value

    def rotation(self, at: str = "") -> tuple[float, dict[str, Any] | None]:
        """Return how a head rotates positions: the base, and the scaling as mlx-lm takes it.

        `at` begins the names of the entries.
        """
        name = f"{at}rope_parameters" if self.value(f"{at}rope_parameters") else f"{at}rope_scaling"
        rope = self.value(name)
        if rope is not None:
            kind = self.value(f"{name}.rope_type") or self.value(f"{name}.type") or "default"
            if kind not in _ROTATIONS:
                raise self.error(f"{name}.rope_type", kind, f"one of {', '.join(_ROTATIONS)}")
            with from_library(self.path, "config"):
                check_numbers(rope)
        base = self.number(f"{at}rope_theta", 1e4, high=1e15)
        return self.number(f"{name}.rope_theta", base, high=1e15), rope

    def layer_arguments(self, width: int, at: str = "") -> dict[str, Any]:
        """Return the arguments that layers of mlx-lm's classes have in common.

        `width` is the target's, which the head has, too; `at` begins the names of the entries.
        """
        if self.integer(f"{at}hidden_size", width) != width:
            wanted = f"{width}, as the model has"
            raise self.error(f"{at}hidden_size", self.value(f"{at}hidden_size"), wanted)
        if self.value(f"{at}hidden_act") not in (None, "silu"):
            raise self.error(f"{at}hidden_act", self.value(f"{at}hidden_act"), "silu")
        heads = self.integer(f"{at}num_attention_heads")
        groups = self.integer(f"{at}num_key_value_heads", heads)
        if heads % groups:
            raise self.error(f"{at}num_key_value_heads", groups, f"a divisor of {heads}")
        base, rope = self.rotation(at)
        return {
            "hidden_size": width,
            "intermediate_size": self.integer(f"{at}intermediate_size"),
            "num_attention_heads": heads,
            "num_key_value_heads": groups,
            "head_dim": self.integer(f"{at}head_dim", width // heads or 1),
            "rms_norm_eps": self.number(f"{at}rms_norm_eps", 1e-6, high=1),
            "max_position_embeddings": self.integer(
                f"{at}max_position_embeddings", 2048, high=2**40
            ),
            "rope_theta": base,
            "rope_scaling": rope,
        }

    def windows(self, count: int, at: str = "") -> tuple[int | None, ...]:
        """Return the windows of a head's layers; None for a layer without."""
        name = f"{at}layer_types"
        kinds = self.value(name) or ["full_attention"] * count
        known = isinstance(kinds, list) and all(
            kind in ("full_attention", "sliding_attention") for kind in kinds
        )
        if not known or len(kinds) != count:
            wanted = f"full_attention or sliding_attention for each of {count} layers"
            raise self.error(name, self.value(name), wanted)
        return tuple(
            self.integer(f"{at}sliding_window") if kind == "sliding_attention" else None
            for kind in kinds
        )

    def unknown_forms(
        self, names: Mapping[str, tuple[object, ...]] = _NOT_RUN, at: Sequence[str] = ("",)
    ) -> list[str]:
        """Return the entries that ask for another pass: those without one of the given values."""
        return [
            f"{place}{name}"
            for name, harmless in names.items()
            for place in at
            if self.value(f"{place}{name}") not in harmless
        ]

    def refuse(self, path: Path, kind: str, reasons: Sequence[str]) -> None:
        """Raise UnsupportedArchitectureError for a head that is computed in another way, if any.

        `path` and `kind`, as in "an EAGLE-3", name the head.
        """
        if reasons:
            raise UnsupportedArchitectureError(
                f"{path} is {kind} head of a kind that akunu does not run: it has "
                f"{', '.join(reasons)}; use another head of this model, or leave it out"
            )
