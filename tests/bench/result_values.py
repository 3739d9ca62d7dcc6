"""A small result with every field filled, for tests of what is done with results."""

from akunu_py.bench.environment import Environment
from akunu_py.bench.measured_model import Model
from akunu_py.bench.result_file import BenchResult, Costs, Failure
from akunu_py.bench.tables import Column, Table

ENVIRONMENT = Environment(
    akunu="1.0", mlx="0.32", mlx_lm="0.32", python="3.11", platform="Linux", machine="x86_64",
    device="cpu", device_name="cpu", commit=None, cpu_count=2, memory_bytes=None,
    blas="MLX's own",
)  # fmt: skip

TABLE = Table(
    "rates",
    "Rates",
    (Column("category", "category"), Column("hit_rate", "hit\nrate", ".0%"),
     Column("speedup", "speedup", ".2f", "x", detail=True)),
    (("edit", 0.5, 1.25), ("a|b <i>", None, None), ("all", 1 / 3, 2)),
    note="Measured.",
    total_rows=1,
)  # fmt: skip


def result(**changes):
    values = {
        "command": "hit-rate",
        "arguments": {"drafter": "ngram", "seed": 0, "categories": ("edit",), "limit": None},
        "environment": ENVIRONMENT,
        "model": Model("m.gguf", "m", "llama", 7, "dense", 64, "0" * 64),
        "draft_model": None,
        "costs": Costs(0.01, {1: 1.0, 2: 1.5, 10: 3.0}),
        "deterministic": {"total": {"tokens": 12, "hit_rate": None, "per_position": (3, 2)}},
        "timing": {
            "ratios": {"speedup": {"ratio": 1.2, "low": 1.1, "high": 1.3, "pairs": 2}},
            "total": {"decode_s": 1.5},
        },
        "tables": (TABLE,),
        "items": ({"id": "edit/one", "category": "edit", "tokens": (1, 2)},),
        "failures": (Failure("edit/two", "too long"),),
        "started": "2026-01-02T03:04:05+00:00",
        "seconds": 2.5,
        "finished": True,
    }
    return BenchResult(**{**values, **changes})


HIT_RATE = {
    "deterministic": {
        "total": {
            "prompts": 2, "identical": 2, "passes": 10, "passes_with_draft": 8, "drafted": 20,
            "drafted_per_position": [8, 7, 5], "accepted_per_position": [6, 5, 4],
            "accepted_per_pass": [2, 1, 1, 4],
        },
        "categories": {"edit": {"alpha": 0.9, "prompts": 1, "identical": 1}},
    },
    "timing": {
        "ratios": {
            "decode": {"ratio": 1.4, "low": 1.2, "high": 1.6, "pairs": 2},
            "decode/edit": {"ratio": 1.4, "low": None, "high": None, "pairs": 1},
        },
        "total": {"propose_s": 0.01},
    },
    "arguments": {"num_draft_tokens": 4},
    "tables": (
        Table("heat_map", "Speed", (Column("x", "order"), Column("y", "drafter"), Column("value", "speed", ".2f")),
              (("2", "ngram", 1.5), ("3", "ngram", None))),
    ),
}  # fmt: skip
