"""Compiles grammars for `trial`, in a process that ends itself at a limit. Run as a script.

It reads requests from its standard input and answers each, both a line of JSON. It imports nothing
of akunu, so that it starts at once. llguidance has limits of its own, but not for intersections and
multiples: a schema of a kilobyte can take it minutes and gigabytes.
"""

import contextlib
import functools
import json
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

TOO_SLOW = -signal.SIGPROF
TOO_LARGE = 4
"""Return codes; the first is that of a process which a signal has ended."""

LIMITS = LLParserLimits(verbose_errors=False, max_items_in_row=2500, max_lexer_states=100_000)
"""llguidance's, also for replies.

Each optional key of an object takes four items of a row, and a state up to 2 kB.
"""

_FIRST_TOKENS = 16
"""Tokens of a reply that are tried: what may come next may be too much there."""

_FIRST_SECONDS = 0.25
"""Of processor time for them. llguidance's limits of a step do not hold for the first one."""

_LOOK_S = 0.01
"""Seconds between two looks at the memory."""

_END = 256
_NAME = re.compile(r"<[^\s<>]+>")
_STATM = Path("/proc/self/statm")


def main(seconds: float, most_bytes: int) -> None:
    """Answer requests until the input ends."""
    watched = _Watch(most_bytes)
    _answer({})  # it is ready
    for line in sys.stdin:
        request = json.loads(line)
        names = frozenset(_NAME.findall(request["grammar"]))
        tokenizer = _tokenizer(request["size"], names)
        # While a timer runs, the clock of the process has coarse steps on Linux.
        began = time.thread_time()
        with watched(seconds):
            matcher = LLMatcher(tokenizer, request["grammar"], log_level=0, limits=LIMITS)
        with watched(min(seconds, _FIRST_SECONDS)):
            _begin(matcher)
        error, seconds_taken = matcher.get_error(), time.thread_time() - began
        spent = _resident_bytes() > most_bytes
        _answer({"error": error, "seconds": seconds_taken, "spent": spent})


def _begin(matcher: LLMatcher) -> None:
    """Follow a reply for a few tokens."""
    for _ in range(_FIRST_TOKENS):
        if matcher.is_error() or matcher.is_stopped():
            break
        # Tokens are bytes here, and what must come next is as long as for the model.
        run = list(matcher.compute_ff_bytes())
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        path = run or [(mask & -mask).bit_length() - 1]
        if not mask or matcher.try_consume_tokens(path) < len(path):
            break


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class _Watch:
    """Ends the process where a block takes more processor time or memory.

    The system looks at the time: llguidance does not always let another thread run.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._limit: int | None = None
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # a process that is profiled may ignore it
        threading.Thread(target=self._run, daemon=True).start()

    @contextlib.contextmanager
    def __call__(self, seconds: float) -> Iterator[None]:
        self._limit = _resident_bytes() + self._most_bytes
        signal.setitimer(signal.ITIMER_PROF, seconds)
        yield
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._limit = None

    def _run(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            limit = self._limit
            if limit is not None and _resident_bytes() > limit:
                os._exit(TOO_LARGE)


def _resident_bytes() -> int:
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    # The peak, in bytes on macOS. Linux counts in it what the parent had when it made this process.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class _Bytes:
    """A vocabulary of single bytes, and of control tokens that a grammar names.

    What compiling costs does not depend on the other tokens.
    """

    is_tokenizer_wrapper = True
    bos_token_id = None
    eos_token_id = _END
    special_token_ids = ()

    def __init__(self, size: int, names: list[str]) -> None:
        known = [bytes([byte]) for byte in range(255)]
        known += [b"", b"<end>", *(b"\xff" + name.encode() for name in names)]
        self.tokens = known + [b""] * (size - len(known))

    def __call__(self, text: Any) -> list[int]:
        return list(text.encode() if isinstance(text, str) else bytes(text))


@functools.lru_cache(maxsize=4)
def _tokenizer(size: int, names: frozenset[str]) -> LLTokenizer:
    given = _Bytes(size, sorted(names))
    return LLTokenizer(
        given,  # type: ignore[arg-type]
        n_vocab=len(given.tokens),
        eos_token=[_END],
        slices=[],
    )


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
