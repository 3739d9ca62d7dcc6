"""Interrupts at any step of Python, where rows and tokens are moved."""

import contextlib
import dis
import functools
import itertools
import sys
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten
from tiny_models import prompt_of

import akunu_py
from akunu_py.values.types import GenerationConfig

PROMPT = prompt_of(20)
GREEDY = GenerationConfig()
ROOM = Path(akunu_py.__file__).parent / "models"


MOVING = {
    str(ROOM / "session.py"),
    str(ROOM / "aligned_rows.py"),
    str(ROOM / "token_model.py"),
    str(ROOM / "cached_rows.py"),
    *map(str, (ROOM / "rollback").glob("*.py")),
}
"""Where interrupts come: what moves rows and tokens."""

HOLDING = {
    contextlib.__file__,
    *(str(ROOM.parent / "engine" / f"{name}.py") for name in ("admission", "hold", "reply_stream")),
}
"""What holds an engine and its reply."""


@functools.cache
def looks(code):
    """Where Python looks for signals: offsets behind calls, at the start, and behind jumps back."""
    found = set()
    for before, after in itertools.pairwise(dis.get_instructions(code)):
        if before.opname.startswith(("CALL", "RESUME")):
            found.add(after.offset)
        elif "JUMP_BACKWARD" in before.opname and "NO_INTERRUPT" not in before.opname:
            found.add(before.argval)
    return found


class Interrupt:
    """Raises KeyboardInterrupt in some files; `number` counts the places from 0.

    They are lines, or with the event "opcode" all places at which Python may raise it.
    """

    def __init__(self, event, number, files=MOVING):
        self._files = files
        self._event = event
        self._left = number
        self.raised = False

    def _trace(self, frame, event, _):
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes = self._event == "opcode"
        if (
            event == self._event
            and not self.raised
            and (event == "line" or frame.f_lasti in looks(frame.f_code))
        ):
            if self._left == 0:
                self.raised = True
                raise KeyboardInterrupt
            self._left -= 1
        return self._trace

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, kind, error, traceback):
        sys.settrace(self._before)
        return kind is KeyboardInterrupt


def interrupted(subject, change, event, files=MOVING):
    """Interrupt a change wherever that is possible in these files; return at how many places."""
    stream = mx.default_stream(mx.default_device())
    states = set()
    expected = functools.cache(lambda prompt: subject.expected(list(prompt)))
    number = 0

    def interrupt():
        call = getattr(subject, change)()
        with Interrupt(event, number, files) as found:
            call()
        # The interpreter interrupts no `with` between its two halves, and a trace does.
        mx.set_default_stream(stream)
        return found.raised

    while True:
        raised = interrupt()
        if (state := described(subject.rows)) not in states:
            states.add(state)
            # What goes on from the rows that are said to be there, and what has to go back.
            for prompt in ([*subject.rows.tokens, 7, 8], [*PROMPT[:9], 5, 6, 7]):
                found = subject.found(prompt)
                assert found == expected(tuple(prompt)), f"interrupted at {number}: {state}"
                interrupt()
        if not raised:
            return number
        number += 1


def described(rows):
    marks = sorted((held, name) for name, (held, _) in rows._marks.items())
    # A place beyond the text would be gone back to once another text is that long.
    assert not rows.settled or not marks or marks[-1][0] <= len(rows.tokens)
    return repr((rows.settled, rows.tokens, [_contents(cache) for cache in rows.caches], marks))


def _contents(cache):
    if hasattr(cache, "offset"):
        return cache.offset
    arrays = [value for _, value in tree_flatten(cache.state) if isinstance(value, mx.array)]
    return [array.sum().item() for array in arrays]
