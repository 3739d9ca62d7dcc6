"""Arms whose passes are written down beforehand, for tests of what is done with them."""

import os
import sys

from akunu_py.lab.compare.arm import Program, Recorder, Skipped, UnavailableError
from akunu_py.lab.compare.runner import Item

END = frozenset({0})


class FakeArm:
    """Gives `passes` for a prompt: tuples of tokens, or an exception to raise in their place."""

    def __init__(self, name, passes, *, plain=None, steady=True, log=None):
        self.name = name
        self.plain = plain or name
        self.steady = steady
        self.version = f"{name} 1.0"
        self.about = "written down"
        self.closed = False
        self._passes = passes
        self._log = [] if log is None else log

    def decode(self, prompt, max_tokens, end_ids):
        self._log.append((prompt[0], self.name))
        recorder = Recorder(max_tokens, end_ids)
        recorder.start()
        passes = self._passes(prompt) if callable(self._passes) else self._passes
        for tokens in passes:
            if isinstance(tokens, BaseException):
                raise tokens
            if recorder.take(tokens, num_drafted=4, num_accepted=len(tokens) - 1):
                break
        return recorder.result()

    def close(self):
        self.closed = True


def item(number, category="edit"):
    return Item(f"i{number}", category, f"s{number}", (number, 5, 6))


class Ticks:
    """A clock that goes on by one second a look."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1
        return self.now


def _good(_subject):
    return [
        # It repeats its prompt but for the first token.
        FakeArm("good-plain", lambda prompt: [(token,) for token in prompt[1:]]),
        Skipped("good-draft", "no draft model"),
        FakeArm("good-pid", [(os.getpid(),)], plain="good-plain"),
    ]


def _absent(_subject):
    raise UnavailableError("it is not installed")


def _broken(_subject):
    raise RuntimeError("no such device")


def _crashing(_subject):
    os._exit(3)


def _modules(_subject):
    """Make an arm whose tokens are 8 for a library that was imported, and 7 for one that was not."""
    return [FakeArm("modules", [(8 if name in sys.modules else 7,) for name in ("mlx", "mlx_lm")])]


# Programs in another process are pickled: their functions are a module's.
GOOD = Program("good", ("good-plain", "good-draft", "good-pid"), _good)
ABSENT = Program("absent", ("absent-plain", "absent-lookup"), _absent)
BROKEN = Program("broken", ("broken-plain",), _broken)
CRASHING = Program("crashing", ("crashing-plain",), _crashing)
MODULES = Program("modules", ("modules",), _modules)
