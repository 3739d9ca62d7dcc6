"""Training of a head: the loss, the optimizer, and checkpoints.

The head learns the model's own distribution of the next token, not the sampled token, and the
model's own state of the place, which gives the distribution. Learning both needs less text than the
distribution alone (EAGLE, Li et al. 2024, arXiv:2401.15077, section 3.2). It begins with one depth,
and the others join as it goes: the first steps, which learn most, are the cheapest. The head guesses
only the tokens of its draft vocabulary, so the distribution is the model's over these. The model's
embedding and output head stay as they are.
"""

import json
import math
import random
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import mlx.core as mx
import numpy as np
from mlx import nn, optimizers
from mlx.utils import tree_flatten, tree_map, tree_unflatten

from akunu_py.models.heads.eagle import EagleHead
from akunu_py.models.heads.families import decoder_of, family_of, make_head, single_layer
from akunu_py.models.heads.head import CachedHead, PredictionHead
from akunu_py.models.heads.look_ahead import NAME, LookAheadHead
from akunu_py.models.heads.parallel import ParallelHead
from akunu_py.models.heads.stored_weights import OFFSETS
from head_training.eagle import initial_eagle, states_between, stored_eagle
from head_training.look_ahead import initial_look_ahead, look_ahead_states
from head_training.parallel import initial_parallel, stored_parallel
from head_training.replies import Text
from head_training.unrolled import unrolled_states

_SAVE_EVERY_S = 120
_SAY_EVERY_S = 30
_STATE_SIZE = 30.0
"""Root mean square of a state before the last layer of a small llama, about."""

_EMBEDDING_SHARE = 0.5
_ADDS = ("self_attn.o_proj", "mlp.down_proj")
_SHARE_OF_STATES = 1.0
"""Weight of the distance of states, in squares of their size, against the divergence in nats."""

_LOOK_AHEAD_EVERY = 12
"""Look-ahead rows pass through all layers, and have few numbers to learn: a step takes one place in
so many, others in each."""

_DECAY_OF_DEPTHS = 0.8
"""Weight of a depth against the one before it: it is reached only if that one was right."""


_STORED = {"eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden"}
"""Part of a head -> its name in files, which are those of Qwen's checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """How to train; a checkpoint of other settings is not continued."""

    kind: Literal["mtp", "medusa", "blockwise", "pass", "eagle3"] = "mtp"
    depths: int = 3  # Tokens ahead that the head learns to guess.
    epochs: int = 3
    batch: int = 512  # Tokens a step, padding included.
    rate: float = 1e-3  # Greatest learning rate.
    vocabulary: int = 8192  # Number of tokens that the head guesses.
    seed: int = 0  # Of the order of texts.


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts of similar lengths, padded at the end."""

    states: mx.array  # [texts, n, width].
    ids: mx.array  # [texts, n + depths].
    starts: mx.array  # Flat indices of the places at which a draft can begin, int32 [m].
    answers: list[mx.array]  # Flat indices of the states that know what follows, int32 [m].
    alive: list[mx.array]  # Whether each answer is of the same text, float32 [depths, m].


def initial_head(model: nn.Module) -> PredictionHead:
    """Return a head that begins as the model's last layer, with the model's last norm.

    The projection undoes the weights of the last norm, and adds the embedding. Its output is near
    1, where the states before the last layer are far larger; so what the layer adds is made smaller
    by the same factor, which changes no direction.
    """
    family = family_of(model)
    head = make_head(model, single_layer(model, family), family)
    _, decoder = decoder_of(model)
    gain = _safe_gain(model)
    state = mx.diag(mx.sqrt((gain * gain).mean()) / gain)
    parts = [_EMBEDDING_SHARE * mx.eye(head.width), state]
    if not family.embedding_first:
        parts.reverse()
    last = {
        name: array * (1 / _STATE_SIZE if name.startswith(_ADDS) else 1)
        for name, array in tree_flatten(decoder.layers[-1].parameters())
    }
    body = [(f"layers.0.{name}", array) for name, array in last.items()]
    head.body.load_weights([*body, ("norm.weight", decoder.norm.weight)])
    head.eh_proj.weight = mx.concatenate(parts, axis=1)
    # Copies: the arrays of the model stay its own.
    head.update(tree_map(lambda array: array.astype(mx.float32) + 0, head.parameters()))
    mx.eval(head.parameters())
    return head


def _safe_gain(model: nn.Module) -> mx.array:
    """Return the weights of the model's last norm, to divide states by; none is near 0."""
    gain = decoder_of(model)[1].norm.weight.astype(mx.float32)
    least = 0.1 * mx.sqrt((gain * gain).mean())
    return mx.where(mx.abs(gain) < least, mx.where(gain < 0, -least, least), gain)


class Trainer:
    """Trains a head on texts, from its checkpoint on if there is one.

    `ids` are the tokens that the head learns to guess, ascending; `step` counts those done.
    """

    def __init__(
        self,
        model: nn.Module,
        end_ids: Collection[int],
        texts: Sequence[Text],
        settings: TrainingSettings,
        checkpoint: Path,
    ) -> None:
        self.step = 0
        self._model = model
        self._settings = settings
        self._checkpoint = checkpoint
        self._texts = texts
        self._plan = _plan(texts, settings)
        self.num_steps = len(self._plan)
        output = (model.get("lm_head") or decoder_of(model)[1].embed_tokens).weight
        self.ids = draft_vocabulary(texts, end_ids, settings.vocabulary, len(output))
        self._columns = output[mx.array(self.ids)]
        self.head = self._initial(model)
        mx.eval(self.head.parameters())
        self._gain = _safe_gain(model)
        self._optimizer = optimizers.AdamW(
            learning_rate=settings.rate, betas=[0.9, 0.95], weight_decay=0.01, bias_correction=True
        )
        self._optimizer.init(self.head.trainable_parameters())
        self._gradient = nn.value_and_grad(self.head, self._loss)
        if checkpoint.exists():
            self._load()

    def _initial(self, model: nn.Module) -> CachedHead:
        kind, depths = self._settings.kind, self._settings.depths
        if kind == "mtp":
            return initial_head(model)
        if kind == "pass":
            return initial_look_ahead(model, depths)
        if kind == "eagle3":
            return initial_eagle(model, self._columns)
        return initial_parallel(model, kind, depths, self._columns)

    def train(self, end: float) -> list[float]:
        """Take steps until all are done, or until `end` of `time.monotonic`; return the losses."""
        losses: list[float] = []
        saved = said = time.monotonic()
        tokens = 0
        while self.step < self.num_steps and time.monotonic() < end:
            batch = self._batch(self._plan[self.step])
            losses.append(self._take_step(batch))
            tokens += batch.starts.size
            now = time.monotonic()
            if now - said > _SAY_EVERY_S:
                recent = losses[-20:]
                print(
                    f"step {self.step} of {self.num_steps}, loss {sum(recent) / len(recent):.3f}, "
                    f"{tokens / (now - said):.0f} tokens a second",
                    flush=True,
                )
                said, tokens = now, 0
            if now - saved > _SAVE_EVERY_S:
                self.save()
                saved = now
        self.save()
        return losses

    def begin_with(self, head: CachedHead) -> None:
        """Take over the weights of a head that `write_side_car` wrote, before the first step."""
        if self.step == 0:
            named = tree_flatten(head.parameters())
            own = [(name, array) for name, array in named if not name.startswith("lm_head.")]
            self.head.load_weights([(name, array.astype(mx.float32)) for name, array in own])

    def save(self) -> None:
        """Write the checkpoint."""
        arrays = {
            **{f"head.{name}": array for name, array in tree_flatten(self.head.parameters())},
            **{f"adam.{name}": array for name, array in tree_flatten(self._optimizer.state)},
        }
        half = self._checkpoint.with_suffix(".part.safetensors")
        mx.save_safetensors(str(half), arrays, {"step": str(self.step), "of": self._name()})
        half.replace(self._checkpoint)

    def _load(self) -> None:
        arrays, facts = mx.load(str(self._checkpoint), return_metadata=True)
        if facts.get("of") != self._name():
            raise SystemExit(
                f"{self._checkpoint} was made with other settings or replies; give the options of "
                "that run, or delete the file to begin anew"
            )
        self.step = int(facts["step"])
        parts: dict[str, list[tuple[str, mx.array]]] = {"head": [], "adam": []}
        for name, array in arrays.items():
            part, _, rest = name.partition(".")
            parts[part].append((rest, array))
        self.head.load_weights(parts["head"])
        self._optimizer.state = tree_unflatten(parts["adam"])
        mx.eval(self.head.parameters(), self._optimizer.state)

    def _name(self) -> str:
        settings = {name: getattr(self._settings, name) for name in TrainingSettings.__slots__}
        return json.dumps({**settings, "texts": len(self._texts), "steps": self.num_steps})

    def _take_step(self, batch: Batch) -> float:
        self._optimizer.learning_rate = self._settings.rate * _share(self.step, self.num_steps)
        loss, gradients = self._gradient(batch)
        gradients, _ = optimizers.clip_grad_norm(gradients, 1.0)
        self._optimizer.update(self.head, gradients)
        mx.eval(self.head.parameters(), self._optimizer.state, loss)
        self.step += 1
        return float(loss)

    def _loss(self, batch: Batch) -> mx.array:
        """Return the mean distance of the head's guesses from what the model says there."""
        width = batch.states.shape[-1]
        known = batch.states.reshape(-1, width)
        total, weights = mx.array(0.0), mx.array(0.0)
        depths = self._settings.depths
        if isinstance(self.head, PredictionHead | EagleHead):
            depths = 1 + depths * self.step // self.num_steps
        # With an output head of its own a head has no need of the model's states.
        output = self.head.get("lm_head")
        share = _SHARE_OF_STATES if output is None and "look_ahead" not in self.head else 0.0
        for depth, states in enumerate(guessed_states(self._model, self.head, batch, depths)):
            target = known[batch.answers[depth]]
            wanted = mx.softmax(target @ self._columns.T, axis=-1)
            columns, guess = self._columns, states
            if output is not None:
                columns = output.get("places", [output] * depths)[depth].weight
            if isinstance(self.head, EagleHead):
                guess = self.head.norm(states)
            logits = guess @ columns.T
            cross = mx.logsumexp(logits, axis=-1) - (wanted * logits).sum(axis=-1)
            apart = (((guess - target) / self._gain) ** 2).mean(axis=-1)
            weight = _DECAY_OF_DEPTHS**depth * batch.alive[depth]
            total = total + ((cross + share * apart) * weight).sum()
            weights = weights + weight.sum()
        return total / weights

    def _batch(self, numbers: Sequence[int]) -> Batch:
        every = _LOOK_AHEAD_EVERY if self._settings.kind == "pass" else 1
        texts = [self._texts[number] for number in numbers]
        return batch_of(texts, self._settings.depths, self.step % every, every)


def batch_of(texts: Sequence[Text], depths: int, first: int = 0, every: int = 1) -> Batch:
    """Return texts as one batch, with `every` n-th place at which a draft can begin."""
    most = max(len(text.ids) for text in texts)
    states = np.zeros((len(texts), most, texts[0].states.shape[1]), dtype=np.float32)
    ids = np.zeros((len(texts), most + depths), dtype=np.int32)
    starts, last = [], []
    for number, text in enumerate(texts):
        size = len(text.ids)
        states[number, :size] = text.states
        ids[number, :size] = text.ids
        # The first draft comes when the prompt's last token is known but not its state.
        places = np.arange(max(0, text.prompt - 2), size - 1)
        places = places[first % len(places) :: every]
        starts.append(number * most + places)
        last.append(np.full(len(places), number * most + size - 1))
    begin, final = np.concatenate(starts), np.concatenate(last)
    answers = [begin + 1 + depth for depth in range(depths)]
    return Batch(
        mx.array(states),
        mx.array(ids),
        mx.array(begin.astype(np.int32)),
        [mx.array(np.minimum(places, final).astype(np.int32)) for places in answers],
        [mx.array((places <= final).astype(np.float32)) for places in answers],
    )


def guessed_states(model: nn.Module, head: CachedHead, batch: Batch, depths: int) -> list[mx.array]:
    """Return a head's states of each depth where drafts begin, [m, width], before output heads."""
    ids = batch.ids[:, : batch.states.shape[1]]
    if isinstance(head, LookAheadHead):
        return look_ahead_states(head, ids, batch.starts, depths)
    if isinstance(head, ParallelHead):
        found = [place(batch.states) for place in head.places[:depths]]
    else:
        taken = batch.states if head.takes == "normed" else states_between(model, head.takes, ids)
        found = unrolled_states(head, taken, batch.ids[:, 1:], depths)
    return [states.reshape(-1, states.shape[-1])[batch.starts] for states in found]


def draft_vocabulary(
    texts: Sequence[Text], end_ids: Collection[int], size: int, vocabulary: int
) -> list[int]:
    """Return the tokens that a head learns to guess, at most `size`, ascending.

    They are the ends of a reply, the tokens that are most frequent in replies, and then those of
    low numbers, to which tokenizers give the text that was frequent in their own training.
    """
    counts = Counter(int(token) for text in texts for token in text.ids[text.prompt :])
    order = sorted(
        range(vocabulary), key=lambda token: (token not in end_ids, -counts[token], token)
    )
    return sorted(order[:size])


def _plan(texts: Sequence[Text], settings: TrainingSettings) -> list[list[int]]:
    """Return the numbers of the texts of each step."""
    plan: list[list[int]] = []
    for epoch in range(settings.epochs):
        rng = random.Random(f"{settings.seed}:{epoch}")
        # Neighbours have similar lengths, and yet differ from epoch to epoch.
        order = sorted(
            (number for number, text in enumerate(texts) if len(text.ids) > text.prompt + 1),
            key=lambda number: len(texts[number].ids) * rng.uniform(0.9, 1.1),
        )
        steps: list[list[int]] = [[]]
        for number in order:
            if steps[-1] and len(texts[number].ids) * (len(steps[-1]) + 1) > settings.batch:
                steps.append([])
            steps[-1].append(number)
        rng.shuffle(steps)
        plan += steps
    return plan


def _share(step: int, num_steps: int) -> float:
    """Return the learning rate of a step as a share of the greatest: warm-up, then a cosine."""
    warm = max(1, min(100, num_steps // 10))
    if step < warm:
        return (step + 1) / warm
    done = (step - warm) / max(1, num_steps - warm)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done))


def write_side_car(head: CachedHead, ids: Sequence[int], path: Path, facts: dict[str, str]) -> None:
    """Write a head that guesses the tokens `ids`, ascending, for `--heads`, in float16."""
    if isinstance(head, LookAheadHead):
        arrays = {NAME: head.look_ahead}
    elif isinstance(head, EagleHead):
        arrays, config = stored_eagle(head, ids)
        path.with_name("config.json").write_text(json.dumps(config))
    elif isinstance(head, ParallelHead):
        arrays = stored_parallel(head, mx.array(np.array(ids, dtype=np.int64)))
    else:
        arrays = {f"mtp.{OFFSETS}": mx.array(np.array(ids, dtype=np.int64) - np.arange(len(ids)))}
        for name, array in tree_flatten(head.parameters()):
            own = name.removeprefix("body.")
            module, _, suffix = own.rpartition(".")
            arrays[f"mtp.{_STORED.get(module, module)}.{suffix}"] = array
    arrays = {
        name: array.astype(mx.float16) if mx.issubdtype(array.dtype, mx.floating) else array
        for name, array in arrays.items()
    }
    half = path.with_suffix(".part.safetensors")
    mx.save_safetensors(str(half), arrays, {"format": "mlx", **facts})
    half.replace(path)
