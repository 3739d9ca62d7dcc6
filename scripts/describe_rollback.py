#!/usr/bin/env python3
"""Write how every family's caches are rolled back into docs/models.md, with what drafts changed.

    python scripts/describe_rollback.py          print the table
    python scripts/describe_rollback.py --write  into docs/models.md, between its markers

Runs the matrix of tests/models/test_rollback_matrix.py: tiny random models with adversarial drafts,
against mlx-lm's plain loop. Takes minutes.
"""

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "models.md"
START = "<!-- scripts/describe_rollback.py writes from here -->"
END = "<!-- end of describe_rollback.py -->"


@dataclass
class Line:
    """What was found of one family; `notes` are tokens that changed in bfloat16."""

    caches: str
    rollback: str
    replies: int = 0
    same: int = 0
    drafted: int = 0
    half_replies: int = 0
    half_same: int = 0
    notes: list[str] = field(default_factory=list)


def kinds(caches: list[object]) -> str:
    """Kinds of caches and how many layers have each."""

    def name(cache: object) -> str:
        parts = getattr(cache, "caches", None)
        if parts is not None:
            return " and ".join(name(part) for part in parts)
        sinks = " with sinks" if getattr(cache, "keep", 0) else ""
        own = {"SinkCache": "RotatingKVCache"}
        return own.get(type(cache).__name__, type(cache).__name__) + sinks

    counted = Counter(name(cache) for cache in caches)
    return ", ".join(f"{count} {kind}" for kind, count in counted.items())


def describe(name: str) -> Line:
    import mlx.core as mx
    from family_models import variant_of
    from rollback_matrix import EXPERTS, Family, settings_of

    family = Family(name)
    line = Line(kinds(family.session._caches), "; ".join(family.session._rollback.methods))
    for setting in settings_of(name, mx.float32):
        cell = family.run(setting)
        line.replies += cell.replies
        line.same += cell.replies - len(cell.differences)
        line.drafted += cell.drafted
    if variant_of(name).family in EXPERTS:
        return line
    family = Family(name, mx.bfloat16)
    for setting in settings_of(name, mx.bfloat16):
        cell = family.run(setting)
        line.half_replies += cell.replies
        line.half_same += cell.replies - len(cell.differences)
        line.notes += [
            f"{name}, {'sampled' if setting.temperature else 'greedy'}, prompt of "
            f"{setting.prompt_size}, drafts {difference.drafter}: token {difference.index}, "
            f"margin {difference.margin:.3f}"
            for difference in cell.differences
        ]
    return line


def table() -> str:
    from family_models import NAMES

    lines = [
        "| family | caches | rollback | drafted tokens | replies the same, float32 | bfloat16 |",
        "|---|---|---|---|---|---|",
    ]
    found = {name: describe(name) for name in NAMES}
    for name, line in found.items():
        half = f"{line.half_same} of {line.half_replies}" if line.half_replies else ""
        lines.append(
            f"| {name} | {line.caches} | {line.rollback} | {line.drafted} "
            f"| {line.same} of {line.replies} | {half} |"
        )
    replies = sum(line.replies for line in found.values())
    same = sum(line.same for line in found.values())
    exact = sum(line.same == line.replies for line in found.values())
    lines += [
        "",
        f"{len(found)} configurations; {exact} are exact in float32 ({same} of {replies} replies).",
        "",
        "What differed in bfloat16, and the distance of the two best scores at the first such token:",
        "",
    ]
    lines += [f"- {note}" for line in found.values() for note in line.notes]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="into docs/models.md")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests"))
    text = table()
    if not arguments.write:
        print(text)
        return
    # Read only now: the table takes minutes, and others write into the page too.
    whole = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = whole.partition(START)
    _, found, after = rest.partition(END)
    if not found:
        sys.exit(f"{DOCUMENT} has lost its markers")
    DOCUMENT.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
