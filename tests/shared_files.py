"""Where models lie, and recorded outputs and vocabularies that are not part of the project."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
REAL_MODEL = Path(
    os.environ.get("AKUNU_TEST_MODEL") or ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
)
"""The default model; the checkout has it where it was fetched, with `scripts/akunu`."""
