"""Replies that tests of a hit-rate run script: with known rates, and one that differs."""

from bench.bench_fakes import reply
from msgspec.structs import replace

from akunu_py.bench.workloads import Prompt

ONE = Prompt("edit/one", "edit", "raw", "one")
TWO = Prompt("config/two", "config", "raw", "two")
THREE = Prompt("edit/three", "edit", "chat", messages=({"role": "user", "content": "three"},))
FOUR = Prompt("edit/four", "edit", "raw", "four")
TURNS = [Prompt(f"talk/{n}", "session", "raw", "one", session="talk", turn=n) for n in range(2)]


def five_of(*prompts):
    """Return each prompt five times under other names: as many sessions as an interval takes."""
    return [
        replace(prompt, id=f"{prompt.id}-{n}", session="") for prompt in prompts for n in range(5)
    ]


SCRIPT = {
    # 12 tokens in 6 s without; 3 passes, one of them without a draft, in 2 s with.
    "one": (
        reply(range(12), 6.0),
        reply(range(12), 2.0, steps=3, steps_with_draft=2, drafted=10, accepted=9, tested=10, output_tokens=12),
    ),
    # A reply without a draft.
    "two": (reply([1, 2], 1.0), reply([1, 2], 1.25, steps=2, output_tokens=2)),
    # Differs from the token of index 2 on.
    "|three|": (
        reply([7, 8, 9, 9], 2.0),
        reply([7, 8, 5, 9], 2.0, steps=4, steps_with_draft=1, drafted=6, accepted=0, tested=1, output_tokens=4),
    ),
    # No time passed.
    "four": (reply([1], 0.0), reply([1], 0.0, steps=1, output_tokens=1)),
}  # fmt: skip
