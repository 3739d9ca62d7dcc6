#!/usr/bin/env python3
"""Print how every family's caches are rolled back, and what drafts changed, for docs/models.md.

Runs the matrix of tests/models/test_rollback_matrix.py: tiny random models with adversarial drafts,
against mlx-lm's plain loop. Takes minutes; with `--resume FILE` a run that was interrupted goes on.
"""

import json
import multiprocessing
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path

from marked_pages import parser_of, print_or_write

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))


@dataclass
class FamilyResult:
    """What was found of one family."""

    caches: str
    rollback: str
    replies: int = 0
    same: int = 0
    half_replies: int = 0
    half_same: int = 0
    margins: list[float] = field(default_factory=list)
    """Distances of the two best scores where a token changed in bfloat16."""


def kinds(caches: list[object]) -> str:
    """Return the kinds of caches that layers have; parentheses enclose those of one layer."""

    def name(cache: object) -> str:
        parts = getattr(cache, "caches", None)
        if parts is not None:
            return f"({', '.join(name(part) for part in parts)})"
        sinks = " with sinks" if getattr(cache, "keep", 0) else ""
        own = {"SinkCache": "RotatingKVCache"}
        return own.get(type(cache).__name__, type(cache).__name__) + sinks

    return ", ".join(sorted({name(cache) for cache in caches}))


def describe(name: str) -> FamilyResult:
    import mlx.core as mx
    from family_models import variant_of
    from rollback_matrix import EXPERTS, Family, settings_of

    family = Family(name)
    rows = family.session._rows
    found = FamilyResult(kinds(rows.caches), "; ".join(rows.rollback.methods))
    for setting in settings_of(name, mx.float32):
        cell = family.run(setting)
        found.replies += cell.replies
        found.same += cell.replies - len(cell.differences)
    if variant_of(name).family in EXPERTS:
        return found
    family = Family(name, mx.bfloat16)
    for setting in settings_of(name, mx.bfloat16):
        cell = family.run(setting)
        found.half_replies += cell.replies
        found.half_same += cell.replies - len(cell.differences)
        found.margins += [difference.margin for difference in cell.differences]
    return found


def describe_all(names: list[str], jobs: int) -> Iterator[tuple[str, FamilyResult]]:
    """Yield the results as processes finish them."""
    # MLX does not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        waiting = {pool.submit(describe, name): name for name in names}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def collect(jobs: int, kept: Path | None) -> dict[str, FamilyResult]:
    """Return the result of every family; those in the file `kept` are taken from there."""
    from family_models import NAMES

    found: dict[str, FamilyResult] = {}
    if kept is not None and kept.exists():
        for text in kept.read_text(encoding="utf-8").splitlines():
            name, entry = json.loads(text)
            found[name] = FamilyResult(**entry)
    missing = [name for name in NAMES if name not in found]
    for name, result in describe_all(missing, jobs):
        found[name] = result
        print(f"{len(found)} of {len(NAMES)}: {name}", file=sys.stderr)
        if kept is not None:
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps([name, asdict(result)]) + "\n")
    return {name: found[name] for name in NAMES}


def describe_results(found: dict[str, FamilyResult]) -> str:
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, result in found.items():
        alike[result.rollback, result.caches].append(name)
    lines = ["| caches of the layers | rollback | families |", "|---|---|---|"]
    lines += [
        f"| {caches} | {rollback} | {'; '.join(names)} |"
        for (rollback, caches), names in sorted(alike.items())
    ]
    replies, same, half_replies, half_same = (
        sum(getattr(result, what) for result in found.values())
        for what in ("replies", "same", "half_replies", "half_same")
    )
    changed = [name for name, result in found.items() if result.margins]
    largest = max((margin for name in changed for margin in found[name].margins), default=0)
    summary = (
        f"{len(found)} configurations. In float32 {same} of {replies} replies are the same, in "
        f"bfloat16 {half_same} of {half_replies}."
    )
    if changed:
        summary += (
            f" Replies differ in {'; '.join(changed)}: there the two best scores were at most "
            f"{largest:.3f} apart at the first token that differs."
        )
    return "\n".join([*lines, "", *textwrap.wrap(summary, 120)])


def main() -> None:
    parser = parser_of(__doc__, "models.md")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE",
        help="keep finished families here and skip those it has; name a new file after a change",
    )  # fmt: skip
    options = parser.parse_args()
    print_or_write(
        "models.md",
        "describe_rollback.py",
        lambda: describe_results(collect(options.jobs, options.resume)),
        write=options.write,
    )


if __name__ == "__main__":
    main()
