"""Tiny random models of every architecture, with the metadata that llama.cpp expects.

A builder fills a `TinyModel`; `BUILDERS` has them by name. `scripts/record_references.py` runs each
with llama.cpp and keeps its logits in `tests/golden/architectures`; `tests/models/
test_architectures.py` runs each with akunu and compares.
"""

import importlib
import pkgutil

from tiny_architectures.builder import BUILDERS, TinyModel, tiny

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["BUILDERS", "TinyModel", "tiny"]
