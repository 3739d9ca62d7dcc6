#!/usr/bin/env python3
"""Record what `akunu bench check` holds the default model to, in tests/golden/bench/.

    scripts/record_bench_baseline.py

To be run where drafts or the default model were changed on purpose; the diff says what became of
the figures. Only what repeats is kept: items, times and what names a machine are left out.
"""

import json
import platform
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "tests" / "golden" / "bench" / "hit-rate.json"
# Drafts that no clock decides: their counts are the same in every run.
DRAFTS = ("--drafter", "ngram", "--draft-budget", "always")
# Not every machine has the kernels that leave them packed.
WEIGHTS = ("--weights", "dense")
COMMAND = ("bench", "hit-rate", "--limit", "2", "--max-tokens", "48", *DRAFTS, *WEIGHTS)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [ROOT / "scripts" / "akunu", *COMMAND, "--output", folder], check=True, cwd=ROOT
        )
        record = json.loads((Path(folder) / "result.json").read_text(encoding="utf-8"))
    record["environment"] |= {"platform": platform.system(), "commit": None}
    record |= {"items": [], "tables": [], "timing": {}, "costs": None, "seconds": 0.0}
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {TARGET.relative_to(ROOT)}: look at the diff")


if __name__ == "__main__":
    main()
