#!/usr/bin/env python3
"""Train the models in models/ and write them as GGUF.

    pip install '.[train]'
    python scripts/train_default_model.py tiny  --hours 2 --work-dir ~/akunu-train
    python scripts/train_default_model.py draft --hours 0.3 --work-dir ~/akunu-train
    python scripts/evaluate_default_model.py models/akunu-tiny.gguf

The tokenizer and the token ids are made once for each working folder; both models share them. An
interrupted run goes on from its last checkpoint when the same command is given again.
"""

import argparse
import random
import sys
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from default_model.chat_examples import conversations
from default_model.corpus import load_corpus, render, training_documents
from default_model.export import write_gguf
from default_model.network import Shape
from default_model.training import Run, train
from default_model.vocabulary import VOCABULARY_SIZE, load_or_train

SHAPES = {
    "tiny": Shape(VOCABULARY_SIZE, width=256, layers=5, heads=4, kv_heads=2, feed_forward=640),
    "draft": Shape(VOCABULARY_SIZE, width=128, layers=2, heads=4, kv_heads=2, feed_forward=320),
}


def prepare(work: Path, rounds: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Make or reuse tokenizer.json, train.npy and held_out.npy in the working folder."""
    work.mkdir(parents=True, exist_ok=True)
    train_path, held_out_path = work / "train.npy", work / "held_out.npy"
    if not (train_path.exists() and held_out_path.exists()):
        corpus = load_corpus()
        documents = list(training_documents(corpus, seed, rounds))
        tokenizer = load_or_train(work / "tokenizer.json", documents[:: max(1, rounds)])
        rng = random.Random(seed + 1)
        names = sorted({n for f in corpus.train_functions for n in f.identifiers})
        held_out = ["<|endoftext|>" + text for text in corpus.held_out_files]
        for function in corpus.held_out_functions:
            held_out.extend(render(item) for item in conversations(function, names, rng))
        rng.shuffle(held_out)
        for path, texts in ((train_path, documents), (held_out_path, held_out)):
            pieces = [
                np.array(encoding.ids, dtype=np.uint16)
                for start in range(0, len(texts), 4096)
                for encoding in tokenizer.encode_batch(texts[start : start + 4096])
            ]
            np.save(path, np.concatenate(pieces))
    return np.load(train_path, allow_pickle=False), np.load(held_out_path, allow_pickle=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", choices=sorted(SHAPES))
    parser.add_argument(
        "--hours", type=float, required=True, help="training time, all runs together"
    )
    parser.add_argument("--work-dir", type=Path, required=True, help="tokenizer, ids, checkpoints")
    parser.add_argument("--rounds", type=int, default=3, help="conversations a function")
    parser.add_argument("--threads", type=int, default=0, help="0: PyTorch's own choice")
    parser.add_argument("--batch-scale", type=int, default=1, help="larger batches on a GPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="default: models/akunu-tiny[-draft].gguf")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train_ids, held_out_ids = prepare(options.work_dir, options.rounds, options.seed)
    shape = SHAPES[options.model]
    print(f"{len(train_ids)} training tokens, {len(held_out_ids)} held out, {device}", flush=True)
    run = Run(
        shape=shape,
        train_ids=train_ids,
        held_out_ids=held_out_ids,
        checkpoint=options.work_dir / f"{options.model}.checkpoint",
        seconds=options.hours * 3600,
        device=device,
        batch_scale=options.batch_scale,
        seed=options.seed,
    )
    model = train(run)
    count = sum(parameter.numel() for parameter in model.parameters())
    name = "akunu-tiny" if options.model == "tiny" else "akunu-tiny-draft"
    path = options.output or ROOT / "models" / f"{name}.gguf"
    about = (
        f"{count / 1e6:.1f} million parameters, trained from scratch on the Python standard "
        "library (PSF-2.0): a demonstration, not an assistant"
    )
    tokenizer = load_or_train(options.work_dir / "tokenizer.json", ())
    write_gguf(model, tokenizer, path, name, about)
    print(f"{path}: {count} parameters, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
