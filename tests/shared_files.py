"""Where models lie, and recorded outputs and vocabularies that are not part of the project."""

from pathlib import Path

import pytest

from akunu_py.model_store.known_models import SMOLLM2, data_folder

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
REAL_MODEL = data_folder() / SMOLLM2.file_name
"""The default model where akunu looks for it, asked before conftest.py names a folder without one."""

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
