"""In which form a model's weights are kept, where that is left open."""

import logging

from akunu_py.models.device import has_kernels, on_cpu, physical_memory
from akunu_py.models.rank_split import Group, PlannedGroup
from akunu_py.values.load_options import LoadOptions

_log = logging.getLogger(__name__)

_DENSE_SHARE_OF_MEMORY = 0.5
""""auto" chooses dense weights where they take at most this share of the memory."""


def wants_dense(
    options: LoadOptions, parameters: int, group: Group | PlannedGroup | None = None
) -> bool:
    """Decide between the file's quantized weights and dense ones.

    Each rank of a `group` has about the same share of the model's `parameters`.
    """
    if options.weights != "auto":
        return options.weights == "dense"
    if not on_cpu() or has_kernels():
        return False
    needed = 4 * (parameters if group is None else parameters // group.size())
    fits = needed <= _DENSE_SHARE_OF_MEMORY * physical_memory()
    _log.info(
        "CPU backend: float32 dense weights need %.1f GB and %s; weights are %s",
        needed / 1e9,
        "fit" if fits else "do not fit",
        "dense" if fits else "quantized",
    )
    return fits
