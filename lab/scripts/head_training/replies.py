"""The model's own replies with its hidden states, collected in files.

A head guesses what this model says, so it is trained on what this model says, and not on the text
of others. Replies are sampled in batches, in which a row costs far less than alone. Each file holds one batch:

    ids      int32 [tokens]: prompts and replies one after another
    states   float16 [tokens, width]: the model's states after its last norm
    lengths  int32 [texts]: tokens of each text
    prompts  int32 [texts]: how many of them are the prompt
    heat     float64 [texts]: temperature
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.cache import BatchKVCache, KVCache

from akunu_py.models.heads.families import decoder_of, shared_layers
from akunu_py.protocols import Tokenizer
from head_training.prompts import prompts

TEMPERATURES = (0.0, 0.8, 0.0, 0.4, 1.0)
_EVERY, _HELD_OUT = 8, 2
"""One file in eight has replies to held-out prompts: the third, so that the first comes soon."""

_BATCH = 64
_MOST_PROMPT = 320
_MOST_REPLY = 256
_FEWEST_ROWS = 6
"""A batch ends where fewer replies go on: passes over few rows take almost as long."""


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt and its reply."""

    ids: np.ndarray  # int32 [n].
    states: np.ndarray  # float16 [n, width], the model's states after its last norm.
    prompt: int  # How many ids are the prompt's.
    temperature: float


def collect(model: nn.Module, tokenizer: Tokenizer, folder: Path, tokens: int, end: float) -> int:
    """Write files of replies until the folder has `tokens` tokens of replies, or until `end`.

    `end` is a time of `time.monotonic`. Returns the number of tokens of replies for training.
    Files that are there stay: a further call continues after them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    count = number = 0
    while True:
        held_out = number % _EVERY == _HELD_OUT
        path = folder / _name(number, held_out=held_out)
        if not path.exists():
            if count >= tokens or time.monotonic() > end:
                return count
            started = time.monotonic()
            texts = _batch(model, tokenizer, number, held_out=held_out)
            _write(path, texts)
            size = sum(len(text.ids) - text.prompt for text in texts)
            speed = size / (time.monotonic() - started)
            print(f"{path.name}: {size} tokens of replies, {speed:.0f} a second", flush=True)
        if not held_out:
            with np.load(path, allow_pickle=False) as stored:
                count += int((stored["lengths"] - stored["prompts"]).sum())
        number += 1


def logits_of(model: nn.Module, states: mx.array) -> mx.array:
    """Return the logits [..., vocab] of a target's states after its last norm, [..., H]."""
    logits: mx.array = shared_layers(model, decoder_of(model)[1]).logits(states)
    return logits


def read_replies(folder: Path, *, held_out: bool) -> list[Text]:
    """Return the texts of the training files, or of the held-out ones, in order."""
    texts = []
    for path in sorted(folder.glob(_name(None, held_out=held_out))):
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        ends = np.cumsum(arrays["lengths"])
        for place, stop in enumerate(ends):
            rows = slice(int(stop - arrays["lengths"][place]), int(stop))
            texts.append(
                Text(
                    arrays["ids"][rows],
                    arrays["states"][rows],
                    int(arrays["prompts"][place]),
                    float(arrays["heat"][place]),
                )
            )
    return texts


def _name(number: int | None, *, held_out: bool) -> str:
    digits = "?????" if number is None else f"{number:05d}"
    return f"{'held-out' if held_out else 'train'}-{digits}.npz"


def _write(path: Path, texts: Sequence[Text]) -> None:
    half = path.with_suffix(".part")
    with half.open("wb") as stream:
        np.savez(
            stream,
            ids=np.concatenate([text.ids for text in texts]),
            states=np.concatenate([text.states for text in texts]),
            lengths=np.array([len(text.ids) for text in texts], dtype=np.int32),
            prompts=np.array([text.prompt for text in texts], dtype=np.int32),
            heat=np.array([text.temperature for text in texts]),
        )
    half.replace(path)


def _batch(model: nn.Module, tokenizer: Tokenizer, number: int, *, held_out: bool) -> list[Text]:
    """Return replies to the prompts of one file."""
    given = itertools.islice(_encode_prompts(tokenizer, number, held_out=held_out), _BATCH)
    rows = [_Row(ids, TEMPERATURES[place % len(TEMPERATURES)]) for place, ids in enumerate(given)]
    sampling = _Sampling(model, rows, tokenizer.end_ids, seed=number)
    while sampling.num_open >= _FEWEST_ROWS:
        sampling.step()
    return [row.text() for row in rows]


def _encode_prompts(tokenizer: Tokenizer, number: int, *, held_out: bool) -> Iterator[list[int]]:
    for prompt in prompts(held_out=held_out, seed=number):
        ids = tokenizer.encode_chat([{"role": "user", "content": prompt.text}])
        if len(ids) <= _MOST_PROMPT:
            yield ids


class _Row:
    """A reply under way."""

    def __init__(self, prompt: list[int], temperature: float) -> None:
        self.ids = list(prompt)
        self.prompt = len(prompt)
        self.temperature = temperature
        self.states: list[np.ndarray] = []
        self.ended = False

    def take(self, states: np.ndarray, token: int, end_ids: frozenset[int]) -> None:
        """Take the states [n, width] of the tokens that were fed, and the token after them."""
        if self.ended:
            return
        self.states.append(states)
        # The end itself is fed too, so that its state is not missing.
        fed = len(self.ids) - self.prompt
        self.ended = fed >= _MOST_REPLY or (fed > 0 and self.ids[-1] in end_ids)
        if not self.ended:
            self.ids.append(token)

    def text(self) -> Text:
        states = np.concatenate(self.states)
        # The last token may be sampled but not fed.
        ids = np.array(self.ids[: len(states)], dtype=np.int32)
        return Text(ids, states, self.prompt, self.temperature)


class _Sampling:
    """Samples one token after another of several replies."""

    def __init__(
        self, model: nn.Module, rows: Sequence[_Row], end_ids: frozenset[int], seed: int
    ) -> None:
        self._model = model
        _, self._decoder = decoder_of(model)
        self._end_ids = end_ids
        self._random = np.random.default_rng(seed)
        self._rows = list(rows)
        # One prompt after another, so that none is padded.
        single = [self._prefill(row) for row in rows]
        self._caches = [BatchKVCache.merge(caches) for caches in zip(*single, strict=True)]

    @property
    def num_open(self) -> int:
        return sum(not row.ended for row in self._rows)

    def step(self) -> None:
        """Feed the last tokens and sample the next ones."""
        states = batch_states(
            self._decoder, mx.array([row.ids[-1:] for row in self._rows]), self._caches
        )
        mx.eval(states, [cache.state for cache in self._caches])
        self._take(self._rows, states)
        ended = len(self._rows) - self.num_open
        if ended >= len(self._rows) / 8 and self.num_open:
            left = [place for place, row in enumerate(self._rows) if not row.ended]
            self._rows = [self._rows[place] for place in left]
            for cache in self._caches:
                cache.filter(mx.array(left))
            mx.eval([cache.state for cache in self._caches])

    def _prefill(self, row: _Row) -> list[KVCache]:
        caches = [KVCache() for _ in self._decoder.layers]
        self._take([row], self._decoder(mx.array([row.ids]), caches))
        return caches

    def _take(self, rows: Sequence[_Row], states: mx.array) -> None:
        logits = np.array(logits_of(self._model, states[:, -1]))
        for row, of_row, scores in zip(
            rows, np.array(states.astype(mx.float16)), logits, strict=True
        ):
            row.take(of_row, self._next_token(scores, row.temperature), self._end_ids)

    def _next_token(self, logits: np.ndarray, temperature: float) -> int:
        if temperature == 0:
            return int(logits.argmax())
        sums = np.cumsum(np.exp((logits - logits.max()) / temperature))
        drawn = np.searchsorted(sums, self._random.random() * sums[-1], side="right")
        return min(int(drawn), len(logits) - 1)


def batch_states(decoder: nn.Module, tokens: mx.array, caches: Sequence[BatchKVCache]) -> mx.array:
    """Return the states [B, 1, width] after the last norm of one more token of each row, [B, 1].

    As the decoder computes them, but for attention: on a CPU MLX's fused one takes twice as long
    for many rows of one token.
    """
    mask = mx.where(mx.arange(caches[0].size() + 1) < caches[0].left_padding[:, None], -1e9, 0.0)
    states = decoder.embed_tokens(tokens)
    for layer, cache in zip(decoder.layers, caches, strict=True):
        states = states + _attention(
            layer.self_attn, layer.input_layernorm(states), cache, mask[:, None, None]
        )
        states = states + layer.mlp(layer.post_attention_layernorm(states))
    normed: mx.array = decoder.norm(states)
    return normed


def _attention(part: nn.Module, x: mx.array, cache: BatchKVCache, mask: mx.array) -> mx.array:
    rows = x.shape[0]

    def split(projected: mx.array, heads: int) -> mx.array:
        return projected.reshape(rows, heads, 1, -1)

    offset = cache.offset
    queries = part.rope(split(part.q_proj(x), part.n_heads), offset=offset)
    keys = part.rope(split(part.k_proj(x), part.n_kv_heads), offset=offset)
    keys, values = cache.update_and_fetch(keys, split(part.v_proj(x), part.n_kv_heads))
    # The queries that share keys are rows of one product.
    shared = (queries * part.scale).reshape(rows, part.n_kv_heads, -1, queries.shape[-1])
    weights = mx.softmax(shared @ keys.swapaxes(-1, -2) + mask, axis=-1)
    joined: mx.array = part.o_proj((weights @ values).reshape(rows, 1, -1))
    return joined
