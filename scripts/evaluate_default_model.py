#!/usr/bin/env python3
"""Measure the default models on held-out files and functions, with akunu itself.

    python scripts/evaluate_default_model.py models/akunu-tiny.gguf
    python scripts/evaluate_default_model.py models/akunu-tiny-draft.gguf --tasks 0

Prints Markdown for the card: held-out loss (nats a token, bits a byte), the share of edit tasks
done exactly by kind, and samples of outputs, good and bad as they come. Run it with the Python
version whose standard library the model was trained on: the split is by file name.
"""

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from default_model.chat_examples import fence
from default_model.corpus import Corpus, load_corpus
from default_model.edits import EDITS, Edit

from akunu_py import Engine

ROW = 1024  # tokens of context for the loss


def held_out_loss(engine: Engine, texts: tuple[str, ...], rows: int) -> tuple[float, float, int]:
    """Return nats a token, bits a byte and tokens scored, over rows of up to 1,024 tokens."""
    nats, tokens, size = 0.0, 0, 0
    done = 0
    for text in texts:
        ids = engine.tokenizer.encode(text)
        for start in range(0, len(ids) - 1, ROW):
            if done == rows:
                return nats / tokens, nats / np.log(2) / size, tokens
            piece = ids[start : start + ROW + 1]
            logits = engine.logits(piece[:-1]).astype(np.float64)
            top = logits.max(axis=1)
            total = np.log(np.exp(logits - top[:, None]).sum(axis=1)) + top
            chosen = logits[np.arange(len(piece) - 1), piece[1:]]
            nats += float((total - chosen).sum())
            tokens += len(piece) - 1
            size += len(engine.tokenizer.decode(piece[1:]).encode())
            done += 1
    return nats / tokens, nats / np.log(2) / size, tokens


def edit_tasks(corpus: Corpus, count: int, seed: int) -> list[tuple[str, Edit]]:
    """Return (prompt, edit) pairs of held-out functions, the kinds in turn."""
    rng = random.Random(seed)
    names = sorted({n for f in corpus.train_functions for n in f.identifiers})
    functions = rng.sample(corpus.held_out_functions, len(corpus.held_out_functions))
    makers = list(dict.fromkeys(EDITS))
    tasks: list[tuple[str, Edit]] = []
    for function in functions:
        if len(tasks) == count:
            break
        edit = makers[len(tasks) % len(makers)](function.code, names, rng)
        if edit is not None and (edit.kind == "repeat" or edit.code != function.code):
            tasks.append((f"{edit.instruction}\n{fence(function.code)}", edit))
    return tasks


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--rows", type=int, default=120, help="rows of 1,024 tokens for the loss")
    parser.add_argument("--tasks", type=int, default=210, help="edit tasks; 0 for none")
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    corpus = load_corpus()
    with Engine.load(options.model) as engine:
        nats, bits, tokens = held_out_loss(engine, corpus.held_out_files, options.rows)
        version = ".".join(map(str, sys.version_info[:3]))
        print(f"Held-out files of Python {version}: {nats:.3f} nats a token,", end=" ")
        print(f"{bits:.3f} bits a byte, over {tokens} tokens.\n")
        if not options.tasks:
            return
        right: Counter[str] = Counter()
        seen: Counter[str] = Counter()
        samples: list[str] = []
        for prompt, edit in edit_tasks(corpus, options.tasks, options.seed):
            result = engine.chat([{"role": "user", "content": prompt}], max_tokens=500)
            seen[edit.kind] += 1
            exact = result.text.strip() == fence(edit.code)
            right[edit.kind] += exact
            if len(samples) < options.samples:
                verdict = "exact" if exact else "not exact"
                samples.append(
                    f"**{edit.kind}, {verdict}**\n\n{prompt}\n\nReply:\n\n{result.text}\n"
                )
        print("| edit | held-out tasks | done exactly |\n|---|---|---|")
        for kind in sorted(seen):
            print(f"| {kind} | {seen[kind]} | {right[kind] / seen[kind]:.0%} |")
        print(f"| all | {seen.total()} | {right.total() / seen.total():.0%} |\n")
        print("\n".join(samples))


if __name__ == "__main__":
    main()
