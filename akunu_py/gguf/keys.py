"""Typed, range-checked access to the metadata of one architecture."""

from collections.abc import Mapping

import numpy as np

from akunu_py.gguf.header import MetadataValue
from akunu_py.system.errors import ModelFormatError, UnsupportedArchitectureError

MAX_SIZE = 1 << 24
"""Upper bound on widths, head counts and vocabularies."""

# These keys change what a model computes. A reader that does not ask for one of them cannot apply
# it, so its presence is an error rather than a silently different model.
_SIGNIFICANT = (
    "attention.scale",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attention.sliding_window",
    "attention.temperature_length",
    "attention.temperature_scale",
    "attn_logit_softcapping",
    "router_logit_softcapping",
    "final_logit_softcapping",
    "embedding_scale",
    "residual_scale",
    "logit_scale",
    "expert_count",
    "expert_shared_count",
    "expert_weights_scale",
    "expert_group_count",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_log_multiplier",
    "rope.scaling.alpha",
    "rope.freq_base_swa",
    "attention.output_scale",
    "swiglu_clamp_exp",
    "swiglu_clamp_shexp",
    "num_loops",
    "ssm.conv_kernel",
    "swin_norm",
    "use_parallel_residual",
)


class Keys:
    """The keys `<architecture>.<key>` of a file.

    A key counts as used once it was asked for; see `check_unused`. Getters raise ModelFormatError,
    naming the key, for a value of the wrong type or out of range, and for a missing key without a
    default.
    """

    def __init__(self, metadata: Mapping[str, MetadataValue], architecture: str) -> None:
        self.architecture = architecture
        self.metadata = metadata
        self._used: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return f"{self.architecture}.{key}" in self.metadata

    def value(self, key: str) -> MetadataValue | None:
        """Return a value of any kind, None where there is none."""
        self._used.add(key)
        return self.metadata.get(f"{self.architecture}.{key}")

    def _value(self, key: str, default: MetadataValue | None) -> MetadataValue:
        self._used.add(key)
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        if value is None:
            raise ModelFormatError(
                f"the metadata has no {self.architecture}.{key}; the file is incomplete: download "
                "or convert the model again"
            )
        return value

    def error(self, key: str, value: object, wanted: str) -> ModelFormatError:
        """Return the error for a value other than the `wanted` one."""
        shown = repr(value)
        return ModelFormatError(
            f"{self.architecture}.{key} is {shown[:80]}, not {wanted}; the file is damaged: "
            "download or convert the model again"
        )

    def unsupported(self, key: str, value: object, wanted: str) -> UnsupportedArchitectureError:
        """Return the error for a valid value that akunu has no model for."""
        return UnsupportedArchitectureError(
            f"{self.architecture}.{key} is {value!r}; akunu runs {self.architecture} models with "
            f"{wanted} only: use another model"
        )

    def integer(
        self, key: str, default: int | None = None, *, low: int = 1, high: int = MAX_SIZE
    ) -> int:
        """Return a whole number in [low, high], also from an array of equal numbers."""
        value = self._value(key, default)
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "iu" or value.size == 0:
                raise self.error(key, value, "a whole number")
            if (value != value[0]).any():
                raise UnsupportedArchitectureError(
                    f"{self.architecture}.{key} differs from layer to layer; akunu runs "
                    f"{self.architecture} models with equal layers only"
                )
            value = int(value[0])
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(key, value, f"a whole number from {low} to {high}")
        return value

    def layer_integers(
        self,
        key: str,
        layers: int,
        default: int | None = None,
        *,
        low: int = 0,
        high: int = MAX_SIZE,
    ) -> list[int]:
        """Return a whole number for each layer, from an array or one number for all."""
        value = self._value(key, default)
        if not isinstance(value, np.ndarray):
            return [self.integer(key, default, low=low, high=high)] * layers
        if value.dtype.kind not in "iu" or value.size < layers:
            raise self.error(key, value, f"{layers} whole numbers")
        numbers: list[int] = value[:layers].tolist()
        if not all(low <= number <= high for number in numbers):
            raise self.error(key, value, f"whole numbers from {low} to {high}")
        return numbers

    def layer_numbers(
        self, key: str, layers: int, default: float | None = None, *, low: float = 0.0
    ) -> list[float]:
        """Return a number for each layer, finite and at least `low`; one may stand for all."""
        value = self._value(key, default)
        numbers = np.asarray(value)
        if numbers.ndim == 0:
            numbers = np.full(layers, numbers)
        if numbers.dtype.kind != "f" or numbers.size < layers:
            raise self.error(key, value, f"{layers} numbers")
        found: list[float] = numbers[:layers].tolist()
        if not all(low <= number < np.inf for number in found):
            raise self.error(key, value, f"numbers of at least {low:g}")
        return found

    def layer_flags(self, key: str, layers: int) -> list[bool]:
        """Return a boolean for each layer, from an array of booleans or of the numbers 0 and 1."""
        value = self._value(key, None)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biu":
            raise self.error(key, value, "an array of booleans")
        if value.size < layers:
            raise self.error(key, value, f"{layers} booleans")
        return [bool(flag) for flag in value[:layers]]

    def integers(self, key: str) -> list[int]:
        """Return the whole numbers of an array of any length, 0 or more."""
        value = self._value(key, None)
        if not isinstance(value, np.ndarray):
            raise self.error(key, value, "an array of whole numbers")
        return self.layer_integers(key, value.size)

    def number(self, key: str, default: float | None = None, *, low: float, high: float) -> float:
        """Return a number in (low, high], which leaves out NaN."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low < value <= high:
            raise self.error(key, value, f"a number above {low}, at most {high}")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.error(key, value, "a boolean")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.error(key, value, "a text")
        return value

    def ignore(self, *keys: str) -> None:
        """Count keys as used because they change nothing in this architecture."""
        self._used.update(keys)

    def check_unused(self) -> None:
        """Raise UnsupportedArchitectureError for a key that changes the model and was not read.

        A key whose value (0, 1 or "none") changes nothing is accepted.
        """
        for key in _SIGNIFICANT:
            if key in self._used or key not in self:
                continue
            value = self.metadata[f"{self.architecture}.{key}"]
            if isinstance(value, str) and value == "none":
                continue
            if isinstance(value, int | float) and self._means_nothing(key, value):
                continue
            raise UnsupportedArchitectureError(
                f"the model sets {self.architecture}.{key}, which akunu cannot apply to "
                f"{self.architecture} models; use another model"
            )

    def _means_nothing(self, key: str, value: float) -> bool:
        if key == "rope.freq_base_swa":
            base = self.metadata.get(f"{self.architecture}.rope.freq_base", 10000.0)
            if isinstance(base, int | float) and value == base:
                return True
        return value == 0 or (value == 1 and key.endswith(("scale", "factor", "group_count")))
