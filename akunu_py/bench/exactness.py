"""What replies with drafting have in common with those of plain decoding."""

from akunu_py.generation_config import Exactness
from akunu_py.types import GenerationConfig

NOT_EXACT = "not exact"


def reply_exactness(config: GenerationConfig) -> Exactness:
    """Return what drafting leaves alone; by probability, too, the likeliest token is the likeliest.

    So at temperature 0 rejection sampling gives the very reply of plain decoding.
    """
    found = config.exactness
    return "stream" if found == "distribution" and not config.temperature else found
