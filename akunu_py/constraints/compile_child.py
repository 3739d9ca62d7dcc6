"""Compiles grammars for `trial`, in a process that ends itself at a limit. Run as a script.

It reads requests from its standard input and answers each, both a line of JSON. It imports nothing
of akunu, so that it starts at once. llguidance has limits of its own, but not for intersections and
multiples: a schema of a kilobyte can take it minutes and gigabytes.
"""

import json
import os
import re
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

TOO_SLOW = 3
TOO_LARGE = 4
"""Exit codes."""

_LOOK_S = 0.01
"""Seconds between two looks at time and memory."""

_END = 256
_NAME = re.compile(r"<[^\s<>]+>")
_STATM = Path("/proc/self/statm")


def main(seconds: float, most_bytes: int) -> None:
    """Answer requests until the input ends."""
    watched = _Watch(seconds, most_bytes)
    _answer({})  # it is ready
    for line in sys.stdin:
        request = json.loads(line)
        tokenizer = _tokenizer(request["size"], _NAME.findall(request["grammar"]))
        with watched:
            limits = LLParserLimits(verbose_errors=False)
            error = LLMatcher(tokenizer, request["grammar"], log_level=0, limits=limits).get_error()
        _answer({"error": error, "spent": _resident_bytes() > most_bytes // 2})


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class _Watch:
    """Ends the process where its block takes more processor time, or the process more memory."""

    def __init__(self, seconds: float, most_bytes: int) -> None:
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._until: float | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def __enter__(self) -> None:
        self._until = time.process_time() + self._seconds

    def __exit__(self, *_: object) -> None:
        self._until = None

    def _run(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            until = self._until
            if until is not None and time.process_time() > until:
                os._exit(TOO_SLOW)
            if until is not None and _resident_bytes() > self._most_bytes:
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


def _tokenizer(size: int, names: list[str]) -> LLTokenizer:
    given = _Bytes(size, sorted(set(names)))
    return LLTokenizer(
        given,  # type: ignore[arg-type]
        n_vocab=len(given.tokens),
        eos_token=[_END],
        slices=[],
    )


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
