#!/usr/bin/env python3
"""Run a coding agent's session of 30 turns and 20,000 tokens over HTTP, and count what is prefilled.

    python scripts/replay_agent_session.py [--turns 30]

With random models of three kinds (attention, sliding windows, recurrent states), in three formats,
with a client that sends thoughts back and one that drops them. On /v1/messages the system text
begins with a billing block that is another in each request. For each session a line says how many
tokens a turn prefilled beyond its new text, at most. Ends with 1 if that is more than a block.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "server")]

from agent_engine import KINDS, agent_server
from agent_session import FORMATS, beyond_new_text

BLOCK = 8
THOUGHTS = {"no thoughts": (False, True), "kept": (True, True), "dropped": (True, False)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--turns", type=int, default=30)
    turns = parser.parse_args().turns
    worst = 0
    print(
        "| model | format | thoughts | last prompt | prefilled in all | beyond new text, at most |"
    )
    print("|---|---|---|---|---|---|")
    for kind in KINDS:
        for name, format_ in FORMATS.items():
            for thoughts, (thinks, shows) in THOUGHTS.items():
                with agent_server(kind, ROOT / "models/akunu-tiny.gguf", thinks=thinks) as server:
                    talk = format_(server.post, size=130, shows_thoughts=shows)
                    made = [talk.turn(number) for number in range(turns)]
                beyond = max(beyond_new_text(made).values())
                worst = max(worst, beyond)
                prefilled = sum(turn.prefilled for turn in made)
                row = (kind, name, thoughts, made[-1].prompt, prefilled, beyond)
                print(f"| {' | '.join(map(str, row))} |", flush=True)
    return int(worst > BLOCK)


if __name__ == "__main__":
    sys.exit(main())
