"""Drafters: one a file, and the registry that makes them by name."""

from akunu_py.drafting.ngram import NgramDrafter, WindowedNgramDrafter
from akunu_py.drafting.plain import PlainDrafter
from akunu_py.drafting.registry import drafter_names, make_drafter

__all__ = [
    "NgramDrafter",
    "PlainDrafter",
    "WindowedNgramDrafter",
    "drafter_names",
    "make_drafter",
]
