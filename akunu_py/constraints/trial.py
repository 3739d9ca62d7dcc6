"""Whether a grammar can be compiled in bounded time and memory, tried in another process.

llguidance cannot be stopped while it compiles, and its limits do not cover everything. So a
grammar from a stranger is compiled first by a child, which ends itself at a limit. Only one that
passed is compiled here.
"""

import atexit
import contextlib
import hashlib
import json
import signal
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from akunu_py.constraints import compile_child
from akunu_py.constraints.grammar import followed_schema
from akunu_py.system.errors import ConstraintError, EngineStateError, ServerBusyError
from akunu_py.system.limited_child import LimitedChild

QUICK_SECONDS = 0.25
"""Of processor time that trying a grammar may take, for the first. Nearly all take a tenth."""

MOST_SECONDS = 2.0
"""The same for one that took longer. It is tried again, apart: so it holds up no other."""

MOST_BYTES = 128 << 20
"""Of memory, which the reply then takes, too. 512 tools take half of that."""

_MOST_QUEUE_S = 6.0
"""Longest wait for a place."""

_MOST_WAIT_S = 30.0
"""Longest wait for an answer, on a machine that is busy with other work: processor time decides."""

_BUSY = "the machine is too busy to compile a constraint now; try again later"
_RETRY_S = 2

_VERDICTS = 1024
"""Grammars whose result is remembered: agents send the same tools each turn."""

_REASONS = {
    compile_child.TOO_SLOW: "compiling it takes too long",
    compile_child.TOO_LARGE: "compiling it takes too much memory",
}


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What a child found."""

    error: str  # What llguidance says against the grammar; "" if nothing.
    seconds: float  # Processor time that it took, the limit where it took longer.
    refused: str = ""  # Why it cannot be afforded, or "".
    late: bool = False  # Whether more time might do.


class CompileTrial:
    """Compiles grammars in children that it keeps, within one limit of time; from any thread.

    So many grammars are tried at once, and as many children stay ready.
    """

    def __init__(
        self, seconds: float = MOST_SECONDS, most_bytes: int = MOST_BYTES, children: int = 2
    ) -> None:
        self._seconds = seconds
        script = compile_child.__file__
        self._children = [
            LimitedChild(script, seconds, most_bytes, purpose="compile a constraint")
            for _ in range(children)
        ]
        self._idle = list(self._children)
        self._places = threading.BoundedSemaphore(children)
        self._turn = threading.Lock()
        self._closings = 0
        # By digest of the grammar.
        self._results: OrderedDict[bytes, TrialResult] = OrderedDict()
        atexit.register(self.close)

    def result(self, grammar: str, size: int) -> TrialResult:
        """Try a grammar for a vocabulary of `size`, in which every control token is known.

        Raises ServerBusyError where too many others are tried, EngineStateError if it is closed
        meanwhile, ConfigError if no child can be started.
        """
        key = hashlib.sha256(f"{size} {grammar}".encode(errors="surrogatepass")).digest()
        if (found := self._results.get(key)) is not None:
            return found
        closings = self._closings
        with self._place() as child:
            # Others may have asked the same, such as choices of one request.
            found = self._results.get(key)
            if found is None and closings == self._closings:
                found = self._ask(child, grammar, size)
            if closings != self._closings:
                raise EngineStateError("compiling a constraint was ended; send it again later")
            if found is None:
                raise ServerBusyError(_BUSY, retry_after_s=_RETRY_S)
            self._results[key] = found
            while len(self._results) > _VERDICTS:
                self._results.popitem(last=False)
        return found

    @contextlib.contextmanager
    def _place(self) -> Iterator[LimitedChild]:
        # Whoever waits for a place has the turn, so that nobody who comes again gets it before.
        waited = self._turn.acquire(timeout=_MOST_QUEUE_S)
        try:
            if not waited or not self._places.acquire(timeout=_MOST_QUEUE_S):
                raise ServerBusyError(_BUSY, retry_after_s=_RETRY_S)
        finally:
            if waited:
                self._turn.release()
        child = self._idle.pop()
        try:
            yield child
        finally:
            self._idle.append(child)
            self._places.release()

    def close(self) -> None:
        """End the children; verdicts that others wait for fail with an EngineStateError."""
        self._closings += 1
        for child in self._children:
            child.close()

    def _ask(self, child: LimitedChild, grammar: str, size: int) -> TrialResult | None:
        """Return a child's result; None if there is none in time."""
        answer = child.ask({"grammar": grammar, "size": size}, _MOST_WAIT_S)
        if answer == -signal.SIGKILL:  # by the wait
            return None
        if isinstance(answer, int):
            reason = _REASONS.get(answer, "compiling it ends the compiler")
            refused = f"it is too complex ({reason}); make it simpler"
            return TrialResult("", self._seconds, refused, answer == compile_child.TOO_SLOW)
        if answer["spent"]:
            child.close()
        return TrialResult(str(answer["error"]), float(answer["seconds"]))


_QUICK, _LONG = CompileTrial(QUICK_SECONDS), CompileTrial(MOST_SECONDS)
"""The children of this process."""

_SMALLEST = 257
"""Tokens of the vocabulary for grammars that name none: the bytes and an end."""


def check_cost(grammar: str, size: int) -> None:
    """Raise ConstraintError for a grammar that is too expensive for a vocabulary of `size`.

    Also raises what `CompileTrial.result` does.
    """
    found = _QUICK.result(grammar, size)
    if found.late:
        found = _LONG.result(grammar, size)
    if found.refused:
        raise ConstraintError(found.refused)


def end_trials() -> None:
    """End all trials under way, each with an EngineStateError."""
    _QUICK.close()
    _LONG.close()


def try_schema(schema: Mapping[str, Any] | bool) -> TrialResult:
    """Return whether a JSON schema compiles within the shorter limit; raises as `check_cost`."""
    body = {"json_schema": followed_schema(schema)}
    return _QUICK.result(json.dumps({"grammars": [body]}), _SMALLEST)
