#!/usr/bin/env python3
"""Write how every family's caches are rolled back into docs/models.md, with what drafts changed.

    python scripts/describe_rollback.py          print the table
    python scripts/describe_rollback.py --write  into docs/models.md, between its markers

Runs the matrix of tests/models/test_rollback_matrix.py: tiny random models with adversarial drafts,
against mlx-lm's plain loop. Takes minutes; with `--resume FILE` a run that was interrupted goes on.
"""

import argparse
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path

from marked_pages import write_between

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "models.md"
START = "<!-- scripts/describe_rollback.py writes from here -->"
END = "<!-- end of describe_rollback.py -->"

sys.path.insert(0, str(ROOT / "tests"))


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
            return f"({', '.join(name(part) for part in parts)})"
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
    line = Line(
        kinds(family.session._rows.caches), "; ".join(family.session._rows.rollback.methods)
    )
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


def describe_all(names: list[str], jobs: int) -> Iterator[tuple[str, Line]]:
    """Yield the lines as processes finish them."""
    # MLX does not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        waiting = {pool.submit(describe, name): name for name in names}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def collect(jobs: int, kept: Path | None) -> dict[str, Line]:
    """Return the line of every family; those in the file `kept` are taken from there."""
    from family_models import NAMES

    found: dict[str, Line] = {}
    if kept is not None and kept.exists():
        for text in kept.read_text(encoding="utf-8").splitlines():
            name, entry = json.loads(text)
            found[name] = Line(**entry)
    missing = [name for name in NAMES if name not in found]
    for name, line in describe_all(missing, jobs):
        found[name] = line
        print(f"{len(found)} of {len(NAMES)}: {name}", file=sys.stderr)
        if kept is not None:
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps([name, asdict(line)]) + "\n")
    return {name: found[name] for name in NAMES}


def table(found: dict[str, Line]) -> str:
    lines = [
        "| family | caches | rollback | drafted tokens | replies the same, float32 | bfloat16 |",
        "|---|---|---|---|---|---|",
    ]
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
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE",
        help="keep finished families here and skip those it has; name a new file after a change",
    )  # fmt: skip
    arguments = parser.parse_args()
    text = table(collect(arguments.jobs, arguments.resume))
    if not arguments.write:
        print(text)
        return
    write_between(DOCUMENT, START, END, text)


if __name__ == "__main__":
    main()
