"""Programs in another process, made of arms whose passes are written down."""

import os
import sys

from bench.fake_arms import FakeArm

from akunu_lab.compare.arm import Program, Skipped, UnavailableError


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
