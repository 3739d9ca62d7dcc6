"""How much is said on stderr: `akunu --quiet`, `akunu --verbose`, and the log between them."""

import contextlib
import sys
from collections.abc import Iterator

import click
from click.core import ParameterSource

from akunu_py.system.shown_text import one_line

VERBOSE_HELP = "Say on stderr what is decided and why."
QUIET_HELP = "Print no progress, statistics or warnings."

_HANDLER = "akunu_py.cli"
"""The name of our handler: a second run in one process replaces the first one's."""


def set_up_logging(context: click.Context) -> None:
    """Send the log to stderr: warnings, with --verbose what is decided, with --quiet errors.

    A flag wins over the variable or the settings file of the other one; raises click.UsageError
    where both come from the same place.
    """
    verbose, quiet = context.params["verbose"], context.params["quiet"]
    if verbose and quiet:
        flags = {
            name
            for name in ("verbose", "quiet")
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        }
        if len(flags) != 1:
            raise click.UsageError("give either --quiet or --verbose", context)
        verbose, quiet = "verbose" in flags, "quiet" in flags
        context.params.update(verbose=verbose, quiet=quiet)
    import logging

    class Harmless(logging.Formatter):
        """Names of files and texts in them are part of messages."""

        def format(self, record: logging.LogRecord) -> str:
            return one_line(super().format(record))

    logger = logging.getLogger("akunu_py")
    for before in [handler for handler in logger.handlers if handler.name == _HANDLER]:
        logger.removeHandler(before)
    handler = logging.StreamHandler(sys.stderr)
    handler.name = _HANDLER
    handler.setFormatter(Harmless("akunu: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.ERROR if quiet else logging.WARNING)


@contextlib.contextmanager
def hold_log() -> Iterator[None]:
    """Keep the log back while a reply is shown: until its end it has a line without one."""
    import logging.handlers

    logger = logging.getLogger("akunu_py")
    handler = next((one for one in logger.handlers if one.name == _HANDLER), None)
    if handler is None:
        yield
        return
    held = logging.handlers.MemoryHandler(sys.maxsize, flushLevel=sys.maxsize, target=handler)
    logger.removeHandler(handler)
    logger.addHandler(held)
    try:
        yield
    finally:
        logger.removeHandler(held)
        logger.addHandler(handler)
        held.close()


def is_quiet() -> bool:
    """Return whether the command under way was called with --quiet."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.find_root().params.get("quiet"))
