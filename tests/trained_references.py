"""llama.cpp's recorded results for trained models, and comparisons with them.

Recorded by scripts/record_references.py, on weights and KV cache in float32.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from trained_prompts import NEAR_TIE, prompts
from whole_numbers import LEEWAY

GOLDEN = Path(__file__).resolve().parent / "golden" / "trained"


@dataclass(frozen=True)
class Reference:
    """What llama.cpp makes of one prompt; scripts/references/trained_models.py says what the arrays are."""

    name: str
    prompt: str | list
    ids: list[int]
    reply: list[int]
    margins: np.ndarray
    end_margins: np.ndarray
    top: np.ndarray
    top_logits: np.ndarray
    columns: np.ndarray
    some_logits: np.ndarray

    @property
    def ends_at(self):
        """How many tokens precede the first place where a token that ends the reply is likeliest, or None."""
        ends = self.end_margins > 0
        return int(ends.argmax()) if ends.any() else None


@functools.cache
def arrays(model):
    with np.load(GOLDEN / f"{model}.npz") as file:
        return {key: file[key] for key in file.files}


def references(model):
    golden = arrays(model)
    ids = np.split(golden["ids"], np.cumsum(golden["ids_sizes"])[:-1])
    return [
        Reference(
            name, prompt, ids[row].tolist(), golden["replies"][row].tolist(), golden["margins"][row],
            golden["end_margins"][row], golden["top"][row].astype(int), golden["top_logits"][row],
            golden["columns"], golden["some_logits"][row],
        )
        for row, (name, prompt) in enumerate(prompts(model))
    ]  # fmt: skip


def encoded(tokenizer, prompt):
    return tokenizer.encode(prompt) if isinstance(prompt, str) else tokenizer.encode_chat(prompt)


def never_ending(engine):
    """A logit_bias without tokens that end a reply."""
    return dict.fromkeys(engine.tokenizer.end_ids, -1e6)


def check_logits(engine, reference):
    """Logits of the prompt's last rows, and the likeliest token after each of the reply's.

    No recorded choice is closer than NEAR_TIE, and logits differ by less than half of that, or with
    kernels for AVX2 of the closest choice: so the likeliest tokens are equal without exception.
    """
    margins = np.minimum(reference.margins, np.abs(reference.end_margins))
    assert margins.min() > NEAR_TIE
    ids, reply = reference.ids, reference.reply
    found = engine.logits([*ids, *reply])
    last = found[len(ids) - len(reference.top) : len(ids)]
    theirs = np.concatenate([reference.top_logits, reference.some_logits], axis=1)
    ours = np.concatenate(
        [np.take_along_axis(last, reference.top, axis=1), last[:, reference.columns]], axis=1
    )
    most = min(NEAR_TIE * LEEWAY, margins.min()) / 2
    assert np.abs(ours - theirs).max() < most, reference.name
    rows = found[len(ids) - 1 : -1].copy()
    ends = sorted(engine.tokenizer.end_ids)
    end_logits = rows[:, ends].max(axis=1)
    rows[:, ends] = -np.inf
    assert rows.argmax(axis=1).tolist() == reply, reference.name
    assert ((end_logits > rows.max(axis=1)) == (reference.end_margins > 0)).all(), reference.name
