"""Where recorded outputs, vocabularies and small models lie that are not part of the project."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
