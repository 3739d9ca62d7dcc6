"""The parts of mlx-lm that bring transformers, which takes longer to import than all of MLX.

Model folders, conversion and comparisons need them; a GGUF file does not.
"""

import contextlib
import io
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_import() -> Iterator[None]:
    """Keep what imports print from akunu's users, and let them ask for more open files in vain.

    Where that is not allowed mlx-lm's import fails; it is not needed.
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
    from mlx_lm.generate import generate_step, speculative_generate_step
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from mlx_lm.utils import (
        MODEL_ARCHITECTURE_REMAPPING,
        MODEL_REMAPPING,
        dequantize_model,
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
    "load_model",
    "load_tokenizer",
    "quiet_import",
    "save_model",
    "speculative_generate_step",
]
