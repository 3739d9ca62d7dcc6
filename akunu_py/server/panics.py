"""Panics of libraries in Rust, which are not an `Exception`, as errors that end one reply."""

import asyncio
import contextlib
from collections.abc import Iterator

_ENDINGS = (Exception, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)
"""Everything that Python itself raises."""


@contextlib.contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raise a RuntimeError in place of a panic of tokenizers or llguidance (PyO3's)."""
    try:
        yield
    except _ENDINGS:
        raise
    except BaseException as panic:
        raise RuntimeError(f"a library failed: {panic}") from panic
