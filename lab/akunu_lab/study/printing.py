"""Lines for a terminal."""


def printable(line: str) -> str:
    """Replace control characters, with which a text could command a terminal."""
    return "".join(
        one if one.isprintable() or one == "\n" else "\N{REPLACEMENT CHARACTER}" for one in line
    )
