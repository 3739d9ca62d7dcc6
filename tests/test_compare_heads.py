"""Comparison of prediction heads: every way answers every prompt, and the table adds it up."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from akunu_py.bench.workloads import load_prompts
from akunu_py.values.decode_stats import DecodeStats, SourceStats

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from compare_heads import AUTO, PLAIN, answers, table

HEAD = "folder/head.safetensors"


def reply(steps, seconds, drawn=()):
    """A reply of 12 tokens that came in this many passes."""
    stats = DecodeStats(steps=steps, output_tokens=12, sources=drawn)
    return SimpleNamespace(token_ids=tuple(range(12)), decode_s=seconds, stats=stats)


class Recorded:
    """Stands in for an engine: gives the same reply to every prompt, and notes what it was asked."""

    tokenizer = SimpleNamespace(
        has_chat_template=False,
        encode=lambda _text, **_options: [1, 2],
        encode_chat=lambda _: [1, 2],
    )
    context = 100

    def __init__(self, name, log, tokens):
        self.name, self.log, self.tokens = name, log, tokens

    def reset(self):
        self.log.append(f"{self.name} reset")

    def forget(self):
        self.log.append(f"{self.name} forget")

    def generate(self, _ids, config):
        self.log.append(f"{self.name} {config.drafter} {config.max_tokens}")
        return SimpleNamespace(token_ids=self.tokens)


def test_the_table_has_ratios_of_speeds_and_sums_of_counts():
    prompts = [*load_prompts(["prose"])[:5], *load_prompts(["novel"])[:4]]
    copies = SourceStats("reply", 9, 7)
    found = [
        {
            PLAIN: reply(12, 3.0),
            AUTO: reply(8, 2.0, (copies,)),
            HEAD: reply(4, 1.0, (SourceStats("mtp", 5, 2), copies)),
            "own": reply(12, 4.0),
        }
        for _ in prompts
    ]
    _, _, *rows = table(prompts, found, [HEAD, "own"]).splitlines()
    once, more = "1.50 | 1.50 (1.50-1.50)", "3.00 | 3.00 (3.00-3.00) | 2.00 (2.00-2.00)"
    less = "1.00 | 0.75 (0.75-0.75) | 0.50 (0.50-0.50)"
    few = "not enough items"
    assert rows == [
        f"| prose | 5 | head.safetensors | {once} | {more} | 10 of 25 |",
        f"| prose | 5 | own | {once} | {less} | 0 of 0 |",
        f"| novel | 4 | head.safetensors | 1.50 | {few} | 3.00 | {few} | {few} | 8 of 20 |",
        f"| novel | 4 | own | 1.50 | {few} | 1.00 | {few} | {few} | 0 of 0 |",
        f"| **all** | 9 | head.safetensors | {once} | {more} | 18 of 45 |",
        f"| **all** | 9 | own | {once} | {less} | 0 of 0 |",
    ]


def test_all_ways_take_turns_and_forget():
    log = []
    ways = {
        PLAIN: (Recorded("alone", log, (1, 2)), "none"),
        AUTO: (Recorded("alone", log, (1, 2)), "auto"),
        HEAD: (Recorded("head", log, (1, 2)), "auto"),
    }
    found = answers(ways, load_prompts(["prose"])[:2], 9)
    assert [sorted(replies) for replies in found] == [sorted(ways)] * 2
    plain, auto, head = "alone none 9", "alone auto 9", "head auto 9"
    # The first prompt warms up.
    assert log[2::3] == [plain, auto, head] * 2 + [auto, head, plain]
    assert log[0::3] == [f"{line.split()[0]} reset" for line in log[2::3]]
    assert log[1::3] == [f"{line.split()[0]} forget" for line in log[2::3]]


def test_another_reply_ends_the_comparison():
    ways = {
        PLAIN: (Recorded("alone", [], (1, 2)), "none"),
        HEAD: (Recorded("head", [], (1, 3)), "auto"),
    }
    (prompt,) = load_prompts(["prose"])[:1]
    with pytest.raises(SystemExit, match=f"{prompt.id}: the reply of {HEAD} is not the plain one"):
        answers(ways, [prompt], 9)
