"""Replies in a given form: which tokens a JSON schema, an expression or a grammar allows next.

Compiling and matching is llguidance's work (MIT); this room hands it the model's vocabulary and
turns its errors into akunu's.
"""

from akunu_py.constraints.drafter import GRAMMAR, ConstrainedDrafter
from akunu_py.constraints.grammar import Opening, inline_schema, look_up
from akunu_py.constraints.matcher import Matcher, PendingMatcher, make_matcher, pending_matcher
from akunu_py.constraints.trial import end_trials, try_schema
from akunu_py.constraints.vocabulary import MatcherVocabulary

__all__ = [
    "GRAMMAR",
    "ConstrainedDrafter",
    "Matcher",
    "MatcherVocabulary",
    "Opening",
    "PendingMatcher",
    "end_trials",
    "inline_schema",
    "look_up",
    "make_matcher",
    "pending_matcher",
    "try_schema",
]
