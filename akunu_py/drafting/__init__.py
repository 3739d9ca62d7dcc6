"""Drafters: one a file, and the registry that makes them by name."""

from akunu_py.drafting.auto import AutoDrafter, AutoState
from akunu_py.drafting.auto.drafter import ReplyMemory
from akunu_py.drafting.draft_model import DraftModelDrafter, TokenModel
from akunu_py.drafting.lookup import LookupDrafter
from akunu_py.drafting.memory import Memory, open_memory, vocabulary_fingerprint
from akunu_py.drafting.ngram import NgramDrafter, WindowedNgramDrafter
from akunu_py.drafting.plain import PlainDrafter
from akunu_py.drafting.registry import (
    DrafterKind,
    DrafterSetup,
    check_drafter,
    default_num_draft_tokens,
    make_drafter,
)

__all__ = [
    "AutoDrafter",
    "AutoState",
    "DraftModelDrafter",
    "DrafterKind",
    "DrafterSetup",
    "LookupDrafter",
    "Memory",
    "NgramDrafter",
    "PlainDrafter",
    "ReplyMemory",
    "TokenModel",
    "WindowedNgramDrafter",
    "check_drafter",
    "default_num_draft_tokens",
    "make_drafter",
    "open_memory",
    "vocabulary_fingerprint",
]
