"""Texts that a model writes, on which its acceptance is measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from akunu_lab.replay.traces import half_of
from akunu_py.api import ConfigError, Engine, GenerationConfig, Prompt

_AHEAD = 8
"""Least number of tokens made beyond a share."""

_MOST_LOGITS_BYTES = 2**29


@dataclass(frozen=True, slots=True)
class MeasuredText:
    """A reply to a prompt of a session, in token ids, an end-of-generation id included.

    `logits` are the model's at each token of the reply, float32 [n, vocab]; None if they would take
    too much memory, in which case they are computed again.
    """

    session: str
    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    logits: NDArray[np.float32] | None = field(default=None, compare=False, repr=False)

    @property
    def half(self) -> int:
        """The half, 0 or 1, by a hash of the session: similar turns are in one half."""
        return half_of(self.session)


@dataclass(slots=True)
class _Open:
    """A reply as it grows; `config` has its seed.

    The model made the tokens `made`; the first `taken` of them are the reply so far.
    """

    session: str
    prompt: list[int]
    config: GenerationConfig
    made: list[int] = field(default_factory=list)
    taken: int = 0
    complete: bool = False
    """Whether the model ended the reply."""
    logits: list[NDArray[np.float32]] | None = None
    """Its rows, if they are kept."""

    @property
    def ended(self) -> bool:
        """Whether nothing can be added."""
        return self.complete and self.taken == len(self.made)


def generate_texts(
    engine: Engine,
    prompts: Sequence[Prompt],
    *,
    temperature: float,
    num_tokens: int,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[MeasuredText]:
    """Return replies of `num_tokens` tokens in all, spread over the prompts as evenly as they last.

    Every prompt gets the same share. If replies end early, the rest of their share goes to the
    others, which are continued. Noise is keyed by position, so a continued reply equals a reply
    made at once. Some tokens more than the share are made at once, since each round feeds a prompt
    again. When all replies have ended, the prompts are answered again with the next seed. At
    temperature 0, where that would repeat the replies, fewer tokens are returned. `progress` is
    called with the tokens so far.

    Raises ConfigError without prompts or for an option out of range, and ContextOverflowError,
    which names the prompt that does not fit.
    """
    if not prompts:
        raise ConfigError("there are no prompts to measure with; give at least one")
    if num_tokens < 1:
        raise ConfigError(f"the number of tokens is {num_tokens}; give 1 or more")
    config = GenerationConfig(temperature=temperature, seed=seed, drafter="none")
    encoded = [
        (prompt.session, prompt.encode(engine.tokenizer, engine.context)) for prompt in prompts
    ]
    kept = num_tokens * engine.vocabulary_size * 4 <= _MOST_LOGITS_BYTES
    replies: list[_Open] = []
    missing = num_tokens
    while missing > 0:
        growing = [reply for reply in replies if not reply.ended]
        if not growing:
            if replies and temperature == 0:
                break
            again = replace(config, seed=(seed + len(replies) // len(prompts)) % 2**64)
            growing = [
                _Open(name, ids, again, logits=[] if kept else None) for name, ids in encoded
            ]
            replies += growing
        share = max(1, missing // len(growing))
        for reply in growing:
            missing -= _continue(engine, reply, min(share, missing))
            if progress:
                progress(num_tokens - missing)
            if not missing:
                break
    return [_text(reply) for reply in replies if reply.taken]


def _text(reply: _Open) -> MeasuredText:
    rows = None if reply.logits is None else np.concatenate(reply.logits)[: reply.taken]
    return MeasuredText(reply.session, tuple(reply.prompt), tuple(reply.made[: reply.taken]), rows)


def _continue(engine: Engine, reply: _Open, num_tokens: int) -> int:
    """Extend a reply by at most `num_tokens` tokens; return the number added."""
    wanted = reply.taken + num_tokens
    if wanted > len(reply.made) and not reply.complete:
        _make(engine, reply, wanted - len(reply.made) + max(_AHEAD, num_tokens // 4))
    before, reply.taken = reply.taken, min(wanted, len(reply.made))
    return reply.taken - before


def _make(engine: Engine, reply: _Open, num_tokens: int) -> None:
    """Make at most this many further tokens, and their logits."""
    ids = [*reply.prompt, *reply.made]
    room = engine.context - len(ids)
    if room < 1:
        reply.complete = True
        return
    result = engine.generate(ids, replace(reply.config, max_tokens=min(num_tokens, room)))
    reply.made += result.token_ids
    reply.complete = result.finish_reason == "stop"
    if reply.logits is not None and result.token_ids:
        # The engine still has the rows before these tokens, so only these are fed.
        reply.logits.append(engine.logits([*ids, *result.token_ids][:-1], len(ids) - 1))
