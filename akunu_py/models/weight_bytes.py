"""What tensors of GGUF files take of the memory."""

from collections.abc import Iterable, Sequence

from akunu_py.gguf.quants.forms import WeightForm, form_of
from akunu_py.gguf.reader import TensorInfo
from akunu_py.values.load_options import Q6KForm


def forms_of(
    tensors: Iterable[TensorInfo],
    number_bytes: int,
    *,
    dense: bool,
    fitted: bool,
    q6k: Q6KForm = "planes",
) -> list[WeightForm]:
    """Return the form of each tensor in memory; `dense`, `fitted`, `q6k` as in `WeightReader`."""
    if dense:
        return [WeightForm(8 * number_bytes, 0, "dense") for _ in tensors]
    return [form_of(info.type.name, fitted=fitted, q6k=q6k) for info in tensors]


def bytes_in_forms(
    tensors: Sequence[TensorInfo], forms: Sequence[WeightForm], number_bytes: int
) -> int:
    """Return the bytes of tensors in these forms; a dense number has `number_bytes`."""
    bits = sum(
        info.rows * info.cols * _bits_per_weight(form, number_bytes)
        for info, form in zip(tensors, forms, strict=True)
    )
    return round(bits / 8)


def _bits_per_weight(form: WeightForm, number_bytes: int) -> float:
    """Return the bits of a weight in a model whose dense numbers have `number_bytes`."""
    if form.mode == "dense":
        return 8.0 * number_bytes
    # The rest are scales and biases: 16 bits in a form, as wide as dense numbers here.
    codes = form.bits * form.codes_per_weight
    wider = number_bytes / 2 if form.mode == "affine" else 1
    return codes + (form.bits_per_weight - codes) * wider
