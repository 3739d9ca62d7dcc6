#!/usr/bin/env python3
"""Measure what prediction heads bring: plain decoding, `auto`, and `auto` with each head, in turns.

    python scripts/compare_heads.py own
    python scripts/compare_heads.py ~/akunu-head/head.safetensors older.safetensors --limit 22

Each prompt is answered greedily in every way, one right after the other, so that other work on the
machine slows all alike; the way that comes first changes from prompt to prompt. All forget the
earlier prompts first. Prints a table in Markdown: tokens a pass, and ratios of tokens a second of
decoding, with 95 % intervals over prompts. `own` is the model's own head, or the one shipped with
the default model.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from akunu_py.cpu.blas import fix_threads, load_blas

load_blas()

from akunu_py import Engine, GenerationConfig, GenerationResult
from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.hit_rate import encode_prompt
from akunu_py.bench.metrics import TimedPair, speedup
from akunu_py.bench.workloads import CATEGORIES, Prompt, load_prompts
from akunu_py.system.errors import AkunuError
from akunu_py.values.types import DecodeStats

PLAIN, AUTO = "plain", "auto"
Replies = dict[str, GenerationResult]
"""The replies to one prompt: `PLAIN`, `AUTO`, and by head."""


def main() -> None:
    options = _parser().parse_args()
    prompts = [
        prompt
        for category in options.category or ("prose", "novel")
        for prompt in load_prompts([category])[: options.limit]
    ]
    try:
        alone = Engine.load(options.model)
        ways = {PLAIN: (alone, "none"), AUTO: (alone, "auto")}
        for head in options.heads:
            ways[head] = (Engine.load(options.model, heads=head), "auto")
        fix_threads(options.threads)
        found = answers(ways, prompts, options.max_tokens)
    except AkunuError as error:
        raise SystemExit(str(error)) from None
    print(table(prompts, found, options.heads))


def answers(
    ways: dict[str, tuple[Engine, str]], prompts: list[Prompt], max_tokens: int
) -> list[Replies]:
    """Return the replies to each prompt; raise SystemExit if one differs from the plain reply."""
    names = list(ways)

    def reply(name: str, ids: list[int]) -> GenerationResult:
        engine, drafter = ways[name]
        engine.reset()
        engine.forget()
        return engine.generate(ids, GenerationConfig(max_tokens=max_tokens, drafter=drafter))

    found: list[Replies] = []
    for number, prompt in enumerate(prompts):
        ids = encode_prompt(ways[PLAIN][0], prompt)
        if not number:
            for name in names:
                reply(name, ids)
        first = number % len(names)
        replies = {name: reply(name, ids) for name in [*names[first:], *names[:first]]}
        for name in names:
            if replies[name].token_ids != replies[PLAIN].token_ids:
                raise SystemExit(f"{prompt.id}: the reply of {name} is not the plain one")
        found.append(replies)
        print(f"{number + 1} of {len(prompts)}", end="\r", file=sys.stderr, flush=True)
    return found


def table(prompts: list[Prompt], found: list[Replies], heads: list[str]) -> str:
    """Return a row for each category and head, then for each head over all prompts."""
    headings = (
        "workload",
        "prompts",
        "head",
        "`auto`: tokens a pass",
        "speedup (95 %)",
        "with the head: tokens a pass",
        "speedup (95 %)",
        "head against `auto` alone (95 %)",
        "accepted of drawn",
    )
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    for category in [*dict.fromkeys(prompt.category for prompt in prompts), None]:
        chosen = [
            (prompt.id, replies)
            for prompt, replies in zip(prompts, found, strict=True)
            if category in (None, prompt.category)
        ]
        for head in heads:
            cells = (
                category or "**all**",
                str(len(chosen)),
                head if head == "own" else Path(head).name,
                _tokens_per_pass(chosen, AUTO),
                _text(ratio(chosen, AUTO, PLAIN)),
                _tokens_per_pass(chosen, head),
                _text(ratio(chosen, head, PLAIN)),
                _text(ratio(chosen, head, AUTO)),
                _drawn(chosen, head),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ratio(chosen: list[tuple[str, Replies]], way: str, other: str) -> Ratio:
    """Return the speed of decoding in one way over that in another."""
    return speedup([
        TimedPair(
            name,
            len(replies[other].token_ids),
            replies[other].decode_s,
            len(replies[way].token_ids),
            replies[way].decode_s,
        )
        for name, replies in chosen
    ])  # fmt: skip


def _stats(chosen: list[tuple[str, Replies]], way: str) -> DecodeStats:
    return sum((replies[way].stats for _, replies in chosen), DecodeStats())


def _tokens_per_pass(chosen: list[tuple[str, Replies]], way: str) -> str:
    tokens = _stats(chosen, way).tokens_per_pass
    return "-" if tokens is None else f"{tokens:.2f}"


def _drawn(chosen: list[tuple[str, Replies]], head: str) -> str:
    sources = _stats(chosen, head).sources
    drawn = [source for source in sources if source.source == "mtp"]
    return f"{sum(one.accepted for one in drawn)} of {sum(one.drafted for one in drawn)}"


def _text(found: Ratio) -> str:
    if found.ratio is None:
        return found.range_text("")
    return f"{found.ratio:.2f} ({found.range_text('.2f')})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("heads", nargs="+", metavar="HEAD", help="own, or a side-car")
    parser.add_argument("--model", type=Path, help="GGUF file or MLX folder; default: akunu's own")
    parser.add_argument(
        "--category",
        action="append",
        choices=CATEGORIES,
        help="repeatable; default: prose and novel",
    )
    parser.add_argument("--limit", type=int, help="use N prompts of each category")
    parser.add_argument("--max-tokens", type=int, default=64, help="a reply; default: 64")
    parser.add_argument("--threads", type=int, default=1, help="of the BLAS; default: 1")
    return parser


if __name__ == "__main__":
    main()
