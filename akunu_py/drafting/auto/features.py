"""The features of an acceptance estimate, as indices into one list of weights.

Each feature of a candidate token selects one weight from a table. This module lays the tables out
and sorts values into buckets.
"""

from bisect import bisect_left

MAX_MATCH = 64  # longest match that is told apart, in tokens
MAX_POSITION = 65  # longest chain, in tokens

_SIZE = MAX_MATCH + MAX_POSITION + 1


def _buckets(bounds: tuple[int, ...], size: int) -> list[int]:
    """Return the buckets of the values 0 to size - 1; bucket i ends with bounds[i]."""
    return [bisect_left(bounds, value) for value in range(size)]


_MATCH_BOUNDS = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 40)
_POSITION_BOUNDS = (0, 1, 2, 3, 7, 15, 31)
_MATCH = _buckets(_MATCH_BOUNDS, _SIZE)
_COARSE_MATCH = _buckets((2, 6), _SIZE)
_MIDDLE_MATCH = _buckets((1, 3, 7), _SIZE)
POSITION = _buckets(_POSITION_BOUNDS, _SIZE)
SHARE_BOUNDS = (0.35, 0.6, 0.8, 0.95, 0.995)
RATIO_BOUNDS = (0.1, 0.2, 0.4, 0.6, 0.85, 0.95)
_OCCURRENCES = _buckets((1, 2, 5, 15), 256)

NUM_SHARES = len(SHARE_BOUNDS) + 1
ALL_AGREE = NUM_SHARES - 1
NUM_OUTCOMES = 16
NUM_DISTANCES = 24  # powers of two
NUM_CONTEXTS = 9  # buckets of the tokens that two contexts have in common
CERTAINTY = 6  # number of buckets of a probability
CERTAINTY_SCALE = 5.99  # a probability times this is its bucket

# The beginning of each table.
MATCH_SHARE = 0
POSITION_MATCH = MATCH_SHARE + 13 * NUM_SHARES
SUPPORT_MATCH = POSITION_MATCH + 8 * 3
REGION_MATCH = SUPPORT_MATCH + 5 * 4
STREAK = REGION_MATCH + 3 * 2
OUTCOMES = STREAK + 8 * 3 * 2
RATIO = OUTCOMES + 3 * NUM_OUTCOMES
EARLIER = RATIO + 7 * 5 * 2
DISTANCE = EARLIER + CERTAINTY * CERTAINTY
RECENT = DISTANCE + 2 * NUM_DISTANCES
CONTEXT = RECENT + 3 * 6
NUM_WEIGHTS = CONTEXT + 4 * NUM_CONTEXTS

# Beginnings of rows, by value: match + position, position, number of supporters.
match_row = [MATCH_SHARE + bucket * NUM_SHARES for bucket in _MATCH]
position_match = [
    [POSITION_MATCH + bucket * 3 + coarse for coarse in _COARSE_MATCH] for bucket in POSITION
]
support_row = [SUPPORT_MATCH + bucket * 4 for bucket in _buckets((1, 2, 3, 7), 256)]
middle_match = _MIDDLE_MATCH
context_row = [CONTEXT + bucket * NUM_CONTEXTS for bucket in _buckets((0, 1, 2), _SIZE)]
recent_row = [RECENT + bucket * 6 for bucket in _COARSE_MATCH]
context_column = _buckets((0, 1, 2, 3, 4, 6, 8, 10), 65)
ratio_column = [2 * bucket for bucket in _OCCURRENCES]
