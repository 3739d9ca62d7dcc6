"""How many passes searching ahead saves a beam search of the shipped model: a table for docs/methods.md.

python scripts/measure_beam_search.py [--max-tokens 24] [--widths 1,3,5]
"""

import argparse
from pathlib import Path

from akunu_py import Engine
from akunu_py.lab.beam import beam_search

MODELS = Path(__file__).resolve().parents[1] / "models"
PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(",
    "Once upon a time there was a",
)


def measure(engine, options):
    """Return hypotheses of every prompt, and the sums of what their searches took."""
    results = [beam_search(engine, prompt, **options) for prompt in PROMPTS]
    stats = [result.stats for result in results]
    return [result.hypotheses for result in results], {
        "steps": sum(one.steps for one in stats),
        "passes": sum(one.passes for one in stats),
        "rows": sum(sum(one.rows) for one in stats),
        "largest": max(max(one.rows) for one in stats),
        "kept": sum(one.kept_draft_steps for one in stats),
        "drafted": sum(one.draft_steps for one in stats),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-tokens", type=int, default=24)
    parser.add_argument("--widths", default="1,3,5")
    chosen = parser.parse_args()
    draft = MODELS / "akunu-tiny-draft.gguf"
    print("| w | ahead | u | passes | rows | most rows a pass | steps ahead kept | same result |")
    print("|---|---|---|---|---|---|---|---|")
    with Engine.load(MODELS / "akunu-tiny.gguf", draft_model=draft) as engine:
        for width in map(int, chosen.widths.split(",")):
            options = {"width": width, "max_tokens": chosen.max_tokens}
            plain = None
            for drafter, wide in [
                ("none", None), ("ngram", 2 * width),
                *(("draft-model", times * width) for times in (1, 2, 4)),
            ]:  # fmt: skip
                found, sums = measure(engine, {**options, "drafter": drafter, "draft_width": wide})
                plain = plain or found
                kept = f"{sums['kept']} of {sums['drafted']}" if sums["drafted"] else "-"
                print(
                    f"| {width} | {drafter} | {wide or '-'} | {sums['passes']} | {sums['rows']} | "
                    f"{sums['largest']} | {kept} | {'yes' if found == plain else 'NO'} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
