"""Where trained models lie that tests run."""

import pytest
from shared_files import REAL_MODEL, ROOT

REAL = "SmolLM2-135M-Instruct.Q4_1"
PATHS = {
    "akunu-tiny": ROOT / "models" / "akunu-tiny.gguf",
    "akunu-tiny-draft": ROOT / "models" / "akunu-tiny-draft.gguf",
    REAL: REAL_MODEL,
}


def path_of(model):
    """The path of a model's file; skips the test where it is absent."""
    if not PATHS[model].is_file():
        pytest.skip(f"{PATHS[model]} is absent: `scripts/akunu models pull smollm2` fetches it")
    return PATHS[model]
