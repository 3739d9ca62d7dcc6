"""The parts of mlx-lm that import transformers, which takes longer to import than all of MLX.

Model folders, conversion and comparisons need them; GGUF files do not.
"""

import contextlib
import importlib
import io
import pkgutil
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_import() -> Iterator[None]:
    """Hide the output of imports, and ignore failures to raise the limit of open files.

    mlx-lm raises that limit at import and fails where it may not; akunu does not need it.
    """
    raise_limit = resource.setrlimit

    def ask(kind: int, limits: tuple[int, int]) -> None:
        with contextlib.suppress(ValueError, OSError):
            raise_limit(kind, limits)

    resource.setrlimit = ask
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        resource.setrlimit = raise_limit


with quiet_import():
    from mlx_lm.generate import generate_step, generation_stream
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from mlx_lm.utils import (
        MODEL_ARCHITECTURE_REMAPPING,
        MODEL_REMAPPING,
        dequantize_model,
        infer_quant_config,
        load_config,
        load_model,
        load_tokenizer,
        save_model,
    )

__all__ = [
    "MODEL_ARCHITECTURE_REMAPPING",
    "MODEL_REMAPPING",
    "TokenizerWrapper",
    "dequantize_model",
    "generate_step",
    "generation_stream",
    "infer_quant_config",
    "load_config",
    "load_model",
    "load_tokenizer",
    "quiet_import",
    "save_model",
]


def submodules(package: str) -> frozenset[str]:
    """Return the names of the modules in one of mlx-lm's packages."""
    parent = importlib.import_module(f"mlx_lm.{package}")
    return frozenset(module.name for module in pkgutil.iter_modules(parent.__path__))
