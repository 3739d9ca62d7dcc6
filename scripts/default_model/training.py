"""The training loop: resumable, bounded by time, on CPU or CUDA."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from default_model.network import Decoder, Muon, Shape

TOKENS_PER_STEP = 4096
# Early on, one row in this many repeats a random segment. Copying is learned from such rows within a
# few hundred steps, and every edit task rests on it.
COPY_ROW_EVERY = 6
COPY_UNTIL = 0.5
# (share of the run, row length): short rows first, they cost less and teach the local patterns;
# the whole context at the end.
PHASES = ((0.55, 512), (0.85, 1024), (1.01, 2048))
CHECKPOINT_EVERY_S = 300.0
REPORT_EVERY_S = 30.0


@dataclass(frozen=True, slots=True)
class Run:
    """What a training run needs to know."""

    shape: Shape
    train_ids: NDArray[np.uint16]
    held_out_ids: NDArray[np.uint16]
    checkpoint: Path
    seconds: float
    device: str
    batch_scale: int = 1
    matrix_lr: float = 0.02
    vector_lr: float = 3e-3
    seed: int = 0


def learning_rate(progress: float) -> float:
    """Warm-up over 1 %, constant, then linear to zero over the last 45 %."""
    if progress < 0.01:
        return max(progress / 0.01, 0.02)
    return min(1.0, max(0.0, (1.0 - progress) / 0.45))


def lay_copy_rows(rows: Tensor, targets: Tensor, ids: NDArray[np.uint16], step: int) -> None:
    """Overwrite every sixth row by a repeated segment of tokens drawn at random, in place.

    The first occurrence cannot be predicted, so its targets are left out of the loss (-100).
    """
    rng = np.random.default_rng(step)
    length = rows.shape[1]
    for row in range(0, len(rows), COPY_ROW_EVERY):
        size = int(rng.integers(8, length // 2))
        segment = ids[rng.integers(0, len(ids), size)].astype(np.int64)
        repeated = torch.from_numpy(np.resize(segment, length + 1)).to(rows.device)
        rows[row], targets[row] = repeated[:-1], repeated[1:]
        targets[row, : size - 1] = -100


def held_out_loss(model: Decoder, ids: NDArray[np.uint16], device: str, rows: int = 24) -> float:
    """Mean cross-entropy in nats a token over rows of 1,024 held-out tokens."""
    length = 1024
    rows = min(rows, (len(ids) - 1) // length)
    total = 0.0
    with torch.no_grad():
        for row in range(rows):
            piece = torch.from_numpy(ids[row * length : (row + 1) * length + 1].astype(np.int64))
            piece = piece.to(device)[None]
            logits = model(piece[:, :-1])
            total += F.cross_entropy(logits.flatten(0, 1), piece[:, 1:].flatten()).item()
    return total / rows


def optimizers(model: Decoder, run: Run) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for the embeddings and norms."""
    matrices = [p for p in model.blk.parameters() if p.dim() == 2]
    rest = [p for n, p in model.named_parameters() if not (n.startswith("blk") and p.dim() == 2)]
    return [
        Muon(matrices, lr=run.matrix_lr),
        torch.optim.AdamW(rest, lr=run.vector_lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def train(run: Run) -> Decoder:
    """Train until `run.seconds` of training time have been spent, over all resumed runs."""
    torch.manual_seed(run.seed)
    model = Decoder(run.shape).to(run.device)
    steppers = optimizers(model, run)
    base_rates = [group["lr"] for stepper in steppers for group in stepper.param_groups]
    spent, step, position = 0.0, 0, 0
    if run.checkpoint.exists():
        # weights_only: a checkpoint is a file like any other and must not run code.
        saved = torch.load(run.checkpoint, map_location=run.device, weights_only=True)
        model.load_state_dict(saved["model"])
        for stepper, state in zip(steppers, saved["optimizers"], strict=True):
            stepper.load_state_dict(state)
        spent, step, position = saved["spent"], saved["step"], saved["position"]
        print(f"resumed at step {step}, {spent:.0f} s", flush=True)

    def save() -> None:
        state = {
            "model": model.state_dict(),
            "optimizers": [stepper.state_dict() for stepper in steppers],
            "spent": spent,
            "step": step,
            "position": position,
        }
        partial = run.checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(run.checkpoint)

    started = last = time.perf_counter()
    saved_at = reported_at = started
    losses: list[float] = []
    while spent < run.seconds:
        progress = spent / run.seconds
        length = next(length for share, length in PHASES if progress < share)
        rows = run.batch_scale * TOKENS_PER_STEP // length
        needed = rows * length + 1
        if position + needed > len(run.train_ids):
            position = 0
        window = run.train_ids[position : position + needed].astype(np.int64)
        position += needed - 1
        ids = torch.from_numpy(window).to(run.device)
        factor = learning_rate(progress)
        groups = [group for stepper in steppers for group in stepper.param_groups]
        for group, rate in zip(groups, base_rates, strict=True):
            group["lr"] = rate * factor
        inputs, targets = ids[:-1].view(rows, length), ids[1:].view(rows, length).clone()
        if progress < COPY_UNTIL:
            inputs = inputs.clone()
            lay_copy_rows(inputs, targets, run.train_ids, step)
        logits = model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for stepper in steppers:
            stepper.step()
            stepper.zero_grad(set_to_none=True)
        losses.append(loss.item())
        step += 1
        now = time.perf_counter()
        spent, last = spent + now - last, now
        if now - reported_at > REPORT_EVERY_S:
            mean = sum(losses) / len(losses)
            print(
                f"step {step} {spent:.0f}/{run.seconds:.0f} s row {length} position {position} "
                f"loss {mean:.3f} lr {factor:.2f}",
                flush=True,
            )
            losses.clear()
            reported_at = now
        if now - saved_at > CHECKPOINT_EVERY_S:
            save()
            held_out = held_out_loss(model, run.held_out_ids, run.device)
            print(f"step {step} held-out {held_out:.3f}", flush=True)
            # Saving and measuring are not training.
            saved_at = last = time.perf_counter()
    save()
    print(f"held-out {held_out_loss(model, run.held_out_ids, run.device, 200):.4f}", flush=True)
    return model
