"""Kinds of values in the laboratory's files."""

from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import Meta

from akunu_py.api import GenerationConfig

Count = Annotated[int, Meta(ge=0)]
Number = Annotated[float, Meta(ge=0)]
"""Finite, 0 or more."""

Progress = Callable[[int, int], None]
"""Called with what is done and what there is to do."""

Exactness = Literal["stream", "distribution", "none"]
NOT_EXACT = "not exact"
"""Text of a table cell if replies need not be the same, since the rule is not exact."""


def reply_exactness(config: GenerationConfig) -> Exactness:
    """Return how replies with drafting relate to replies of plain decoding.

    At temperature 0 all probability is on the likeliest token, so rejection sampling gives the same
    reply as plain decoding.
    """
    found = config.exactness
    return "stream" if found == "distribution" and not config.temperature else found
