"""Where models lie, and recorded outputs and vocabularies that are not part of the project."""

from pathlib import Path

from akunu_py.model_store.default_model import data_folder
from akunu_py.model_store.package_index import SMOLLM2

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
REAL_MODEL = data_folder() / SMOLLM2.file_name
"""The default model where akunu looks for it, asked before conftest.py names a folder without one."""
