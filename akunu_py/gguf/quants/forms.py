"""The form of each GGML type in MLX, and the reasons.

MLX computes with `scale * code + bias` for groups of 32, 64 or 128 codes of 1 to 6 or 8 bits. A
type with groups of at least 32 weights and equidistant values, a lattice, already has that form and
is only packed differently.

**Planes.** Other types are stored as several codes per weight, side by side in one group: for each
16 (or 32) columns `[first codes | second codes | ...]`. The input of the layer is widened in the
same way, to `[m1 * x | m2 * x | ...]` with a multiplier for each plane, and one ordinary product
over more columns computes

    sum(x * w)  for  w = sum over planes of m * (s' * code + b')

The multipliers are at most 1, so widening cannot overflow float16. The scales s' are larger in
return, away from float16's subnormal numbers.

- *Bit planes*, for types with a scale for 16 weights, since MLX has no groups of 16. A code of
  2 h bits is `2**h * upper + lower`. The multipliers are 1 and 2**-h, s' is 2**h * s and b' is
  b / (1 + 2**-h). With h = 3 a weight takes 8 bits; a code of 8 bits in groups of 32 would take 9
  and not be exact.
- *Sign planes*, for the magnitudes 8, 25 and 43 of IQ2. On a lattice they would need codes of 8
  bits, but they are sums of +-17.5, +-16.5 and +-9, a code of one bit each. The multipliers are
  these numbers over 32, s' is 64 * s and b' is -32 * s. MLX's groups are powers of two, so a fourth
  plane with the multiplier 0 fills them up.

**Zero points.** If the bias is a fixed multiple of the scale, `-zero * scale`, that multiple is
chosen as a power of two in the stored form where the code has room. Then rounding a scale to
float16 only changes all weights of a group by the same factor.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from akunu_py.gguf.quants import iq_blocks, simple_blocks
from akunu_py.gguf.quants.simple_blocks import Bytes, Parts
from akunu_py.values.load_options import Q6KForm

Mode = Literal["affine", "mxfp4", "nvfp4"]

E2M1_VALUES = (0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6)
"""Values of the codes of MXFP4 and NVFP4."""


@dataclass(frozen=True, slots=True)
class CodePlanes:
    """How codes are cut into planes; see the module's docstring."""

    # Of the layer's input for each plane; the first plane has the upper bits of a code.
    multipliers: tuple[float, ...]
    step: float  # The stored scale, in units of the weights' scale.


_BIT_PLANES = {bits: CodePlanes((1.0, 2.0**-bits), 2.0**bits) for bits in (1, 2, 3)}
"""Bits of a plane -> how codes of twice as many bits are cut."""

_SIGN_PLANES = CodePlanes((35 / 64, 33 / 64, 18 / 64, 0.0), 64.0)


@dataclass(frozen=True, slots=True)
class WeightForm:
    """The form of a type's weights in memory."""

    bits: int  # Of a stored code, or of a number if `mode` is "dense".
    group_size: int  # Stored codes per scale; 0 if `mode` is "dense".
    mode: Mode | Literal["dense"] = "affine"
    # Of the layer's input for each code of a weight; empty for one code per weight.
    multipliers: tuple[float, ...] = ()

    @property
    def codes_per_weight(self) -> int:
        return max(1, len(self.multipliers))

    @property
    def bits_per_weight(self) -> float:
        """Bits of memory per weight, with scales and biases in 16 bits."""
        if self.mode == "dense":
            return float(self.bits)
        of_scales = 32 if self.mode == "affine" else 8
        return (self.bits + of_scales / self.group_size) * self.codes_per_weight


@dataclass(frozen=True, slots=True)
class Lattice:
    """How to read the blocks of one type as codes, scales and biases."""

    bits: int
    group: int  # Weights per scale.
    # From blocks to codes, scales and biases; see `simple_blocks`.
    decode: Callable[[Bytes, Bytes], Parts]
    # The code of weight 0; biases are `-zero * scale`. None if `decode` returns biases.
    zero: float | None = None
    mode: Mode = "affine"
    values: tuple[float, ...] = ()  # Value of each code, in scales; empty for `code - zero`.
    planes: CodePlanes | None = None  # How codes are cut; None if they are stored whole.

    @property
    def form(self) -> WeightForm:
        """The stored form of these codes."""
        if self.planes is None:
            return WeightForm(self.bits, self.group, self.mode)
        multipliers = self.planes.multipliers
        count = len(multipliers)
        return WeightForm(self.bits // count, self.group * count, multipliers=multipliers)


def _halved(
    bits: int, decode: Callable[[Bytes, Bytes], Parts], zero: float | None = None
) -> Lattice:
    """Return a lattice of codes in groups of 16, cut into bit planes."""
    return Lattice(bits, 16, decode, zero, planes=_BIT_PLANES[bits // 2])


def _signed(group: int, decode: Callable[[Bytes, Bytes], Parts]) -> Lattice:
    """Return the lattice of an IQ2 type, with codes cut into sign planes."""
    return Lattice(4, group, decode, 43, values=iq_blocks.IQ2_VALUES, planes=_SIGN_PLANES)


DENSE = MappingProxyType({"F32": 32, "F16": 16, "BF16": 16})
"""Unquantized types, and the bits of a number in memory."""

EXACT = MappingProxyType(
    {
        "Q8_0": Lattice(8, 32, simple_blocks.q8_0, 128),
        "Q4_0": Lattice(4, 32, simple_blocks.q4_0, 8),
        "Q4_1": Lattice(4, 32, simple_blocks.q4_1),
        "Q5_0": Lattice(5, 32, simple_blocks.q5_0, 16),
        "Q5_1": Lattice(5, 32, simple_blocks.q5_1),
        "Q2_K": _halved(2, simple_blocks.q2_k),
        "Q3_K": _halved(4, simple_blocks.q3_k, 5),
        "Q4_K": Lattice(4, 32, simple_blocks.q4_k),
        "Q5_K": Lattice(5, 32, simple_blocks.q5_k),
        "Q6_K": _halved(6, simple_blocks.q6_k, 32),
        "TQ1_0": Lattice(2, 128, simple_blocks.tq1_0, 1),
        "TQ2_0": Lattice(2, 128, simple_blocks.tq2_0, 1),
        "Q1_0": Lattice(1, 128, simple_blocks.q1_0, 0.5),
        "Q2_0": Lattice(2, 64, simple_blocks.q2_0, 1),
        "IQ4_NL": Lattice(8, 32, iq_blocks.iq4_nl, 128),
        "IQ4_XS": Lattice(8, 32, iq_blocks.iq4_xs, 128),
        "IQ3_S": Lattice(4, 32, iq_blocks.iq3_s, 7.5),
        "IQ3_XXS": Lattice(6, 32, iq_blocks.iq3_xxs, 32),
        "IQ2_S": _signed(16, iq_blocks.iq2_s),
        "IQ2_XS": _signed(16, iq_blocks.iq2_xs),
        "IQ2_XXS": _signed(32, iq_blocks.iq2_xxs),
        "IQ1_M": _halved(4, iq_blocks.iq1_m, 7.5),
        "IQ1_S": Lattice(2, 32, iq_blocks.iq1_s),
        "MXFP4": Lattice(4, 32, simple_blocks.mxfp4, mode="mxfp4", values=E2M1_VALUES),
        "NVFP4": Lattice(4, 16, simple_blocks.nvfp4, mode="nvfp4", values=E2M1_VALUES),
    }
)
"""Type -> its own lattice, which has every weight of a file."""

_Q6_K_IN_8_BITS = Lattice(8, 32, simple_blocks.q6_k_in_8_bits, 128)

SUPPORTED_TYPES = (*DENSE, *EXACT)
"""Names of the GGML types weights may have."""


def lattice_of(name: str, q6k: Q6KForm) -> Lattice:
    """Return the lattice of a type; KeyError for a dense or unknown one."""
    return _Q6_K_IN_8_BITS if name == "Q6_K" and q6k == "8bit" else EXACT[name]


def form_of(block_type_name: str, q6k: Q6KForm = "planes") -> WeightForm:
    """Return the form in which `relayout` puts the weights of a type, such as "Q4_K".

    `q6k` is as for `relayout`. Raises KeyError for a type that is not one of SUPPORTED_TYPES.
    """
    if block_type_name in DENSE:
        return WeightForm(DENSE[block_type_name], 0, "dense")
    return lattice_of(block_type_name, q6k).form
