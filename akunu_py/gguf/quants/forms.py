"""What each GGML type becomes in MLX, and why.

MLX computes with `scale * code + bias` for groups of 32, 64 or 128 codes of 1 to 6 or 8 bits. A
type whose groups have 32 weights or more and whose values lie on a lattice, that is at equal
distances, is that form with other packing.

**Bit planes.** Some types have a scale for 16 weights, and MLX has no groups of 16. A code of
2 h bits is `2**h * upper + lower`. For each 16 columns, `[upper 16 | lower 16]` are stored as one
group of 32 codes of h bits, and the matrix is multiplied by `[x 16 | 2**-h * x 16]`, so that

    sum(x * w) = sum(x * (s' * upper + b')) + sum(2**-h * x * (s' * lower + b'))
    with  s' = 2**h * s  and  b' = b / (1 + 2**-h)

holds for w = s * code + b. Scaling x down, not up, cannot overflow float16, and larger scales stay
away from float16's subnormal numbers; powers of two round nothing. With h = 3 a weight takes 8 bits
instead of the 9 of a code of 8 bits in groups of 32, which would not even be exact.

**Zero points.** Where the bias is a fixed multiple of the scale, `-zero * scale`, that multiple is
chosen, where the code has room, such that it is a power of two in the form stored: then the
rounding of a scale to float16 moves all weights of a group by the same factor and no more.

**Fitted forms.** See `fitted_blocks`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Literal

from akunu_py.gguf.quants import fitted_blocks, iq_blocks, k_blocks, simple_blocks
from akunu_py.gguf.quants.simple_blocks import Bytes, Parts

Mode = Literal["affine", "mxfp4", "nvfp4"]
Q6KForm = Literal["planes", "8bit"]


@dataclass(frozen=True, slots=True)
class WeightForm:
    """The form of a type's weights in memory.

    Attributes:
        bits: of one stored code; of one number where `mode` is "dense".
        group_size: stored codes for one scale; 0 where `mode` is "dense".
        mode: MLX's quantization mode, or "dense".
        planes: two codes are stored for one weight, see the module's docstring.
        exact: with float32 scales the weights are the file's, up to float32's rounding.

    """

    bits: int
    group_size: int
    mode: Mode | Literal["dense"] = "affine"
    planes: bool = False
    exact: bool = True

    @property
    def bits_per_weight(self) -> float:
        """Bits of memory a weight takes, with scales and biases in 16 bits."""
        if self.mode == "dense":
            return float(self.bits)
        if self.mode != "affine":
            return self.bits + 8 / self.group_size
        return (self.bits + 32 / self.group_size) * (2 if self.planes else 1)


@dataclass(frozen=True, slots=True)
class Lattice:
    """How to read the blocks of one type as codes, scales and biases.

    Attributes:
        bits: that the codes need.
        group: weights for one scale.
        decode: blocks to codes, scales and biases; see `simple_blocks`.
        zero: the code of weight 0: biases are `-zero * scale`; None where `decode` returns them.
        mode: MLX's quantization mode.

    """

    bits: int
    group: int
    decode: Callable[[Bytes, Bytes], Parts]
    zero: float | None = None
    mode: Mode = "affine"

    def form(self, *, exact: bool = True) -> WeightForm:
        """Return the form these codes are stored in."""
        if self.group == 16 and self.mode == "affine":
            return WeightForm(self.bits // 2, 32, planes=True, exact=exact)
        return WeightForm(self.bits, self.group, self.mode, exact=exact)


DENSE = MappingProxyType({"F32": 32, "F16": 16, "BF16": 16})
"""Types that stay as they are, and the bits of a number in memory."""

EXACT = MappingProxyType(
    {
        "Q8_0": Lattice(8, 32, simple_blocks.q8_0, 128),
        "Q4_0": Lattice(4, 32, simple_blocks.q4_0, 8),
        "Q4_1": Lattice(4, 32, simple_blocks.q4_1),
        "Q5_0": Lattice(5, 32, simple_blocks.q5_0, 16),
        "Q5_1": Lattice(5, 32, simple_blocks.q5_1),
        "Q2_K": Lattice(2, 16, k_blocks.q2_k),
        "Q3_K": Lattice(4, 16, k_blocks.q3_k, 5),
        "Q4_K": Lattice(4, 32, k_blocks.q4_k),
        "Q5_K": Lattice(5, 32, k_blocks.q5_k),
        "Q6_K": Lattice(6, 16, k_blocks.q6_k, 32),
        "TQ1_0": Lattice(2, 128, simple_blocks.tq1_0, 1),
        "TQ2_0": Lattice(2, 128, simple_blocks.tq2_0, 1),
        "Q1_0": Lattice(1, 128, simple_blocks.q1_0, 0.5),
        "Q2_0": Lattice(2, 64, simple_blocks.q2_0, 1),
        "IQ4_NL": Lattice(8, 32, iq_blocks.iq4_nl, 128),
        "IQ4_XS": Lattice(8, 32, iq_blocks.iq4_xs, 128),
        "IQ3_S": Lattice(4, 32, iq_blocks.iq3_s, 7.5),
        "IQ3_XXS": Lattice(6, 32, iq_blocks.iq3_xxs, 32),
        "IQ2_S": Lattice(8, 16, partial(iq_blocks.iq2_16, iq_blocks.read_iq2_s), 68),
        "IQ2_XS": Lattice(8, 16, partial(iq_blocks.iq2_16, iq_blocks.read_iq2_xs), 68),
        "IQ2_XXS": Lattice(8, 32, iq_blocks.iq2_xxs, 64),
        "IQ1_M": Lattice(4, 16, iq_blocks.iq1_m, 7.5),
        "IQ1_S": Lattice(2, 32, iq_blocks.iq1_s),
        "MXFP4": Lattice(4, 32, simple_blocks.mxfp4, mode="mxfp4"),
        "NVFP4": Lattice(4, 16, simple_blocks.nvfp4, mode="nvfp4"),
    }
)
"""Type -> its own lattice, on which every weight of a file lies."""

FITTED = MappingProxyType(
    {
        "IQ4_NL": Lattice(6, 32, fitted_blocks.iq4_nl, fitted_blocks.IQ4_ZERO),
        "IQ4_XS": Lattice(6, 32, fitted_blocks.iq4_xs, fitted_blocks.IQ4_ZERO),
        "IQ3_XXS": Lattice(4, 32, fitted_blocks.iq3_xxs, 7.5),
        "IQ2_S": Lattice(4, 32, partial(fitted_blocks.iq2_16, iq_blocks.read_iq2_s), 7.5),
        "IQ2_XS": Lattice(4, 32, partial(fitted_blocks.iq2_16, iq_blocks.read_iq2_xs), 7.5),
        "IQ2_XXS": Lattice(3, 32, fitted_blocks.iq2_xxs, 3.5),
        "IQ1_M": Lattice(4, 32, fitted_blocks.iq1_m, 7.5),
    }
)
"""Type -> the smaller form it gets unless exact weights are asked for."""

_Q6_K_IN_8_BITS = Lattice(8, 32, fitted_blocks.q6_k, 128)

SUPPORTED_TYPES = (*DENSE, *EXACT)
"""Names of the GGML types weights may have."""


def lattice_of(name: str, *, exact: bool, q6k: Q6KForm) -> Lattice:
    """Return how the weights of a type are read; KeyError for a dense or unknown one."""
    if exact:
        return EXACT[name]
    if name == "Q6_K" and q6k == "8bit":
        return _Q6_K_IN_8_BITS
    return FITTED.get(name) or EXACT[name]


def form_of(block_type_name: str, *, exact: bool = False, q6k: Q6KForm = "planes") -> WeightForm:
    """Return the form `relayout` gives the weights of a type, without looking at any data.

    Args:
        block_type_name: such as "Q4_K".
        exact: as for `relayout`.
        q6k: as for `relayout`.

    Raises KeyError for a type that is not one of SUPPORTED_TYPES.

    """
    if block_type_name in DENSE:
        return WeightForm(DENSE[block_type_name], 0, "dense")
    lattice = lattice_of(block_type_name, exact=exact, q6k=q6k)
    return lattice.form(exact=lattice is EXACT[block_type_name])
