"""Texts a model writes by itself, to be measured on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from akunu_py.bench.hit_rate import BenchEngine, encode_prompt
from akunu_py.bench.replay.traces import half_of
from akunu_py.bench.workloads import Prompt
from akunu_py.errors import ConfigError
from akunu_py.types import GenerationConfig


class AlphaEngine(BenchEngine, Protocol):
    """The part of `akunu_py.engine.engine.Engine` that a measurement of acceptance needs."""

    @property
    def vocabulary_size(self) -> int:
        """Return the number of logits."""


@dataclass(frozen=True, slots=True)
class Text:
    """A reply to a prompt of that session, in token ids, an end-of-generation id included."""

    session: str
    prompt: tuple[int, ...]
    reply: tuple[int, ...]

    @property
    def half(self) -> int:
        """0 or 1 by a hash of the session, whose turns have much in common: all are in one half."""
        return half_of(self.session)


@dataclass(slots=True)
class _Open:
    """A reply as it grows; `config` has its seed."""

    session: str
    prompt: list[int]
    config: GenerationConfig
    reply: list[int]
    ended: bool = False


def generate_texts(
    engine: AlphaEngine,
    prompts: Sequence[Prompt],
    *,
    temperature: float,
    num_tokens: int,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[Text]:
    """Return replies of `num_tokens` tokens in all, spread over the prompts as evenly as they last.

    Every prompt gets the same share; what replies that end leave over goes to the others, which
    are continued. Noise is keyed by position, so a reply continued is the reply made at once.
    When all have ended the prompts are answered again with the next seed; at temperature 0, where
    that would repeat them, fewer tokens are returned. `progress` is called with tokens so far.

    Raises ConfigError without prompts or for an option out of range, ContextOverflowError naming
    the prompt that does not fit.
    """
    if not prompts:
        raise ConfigError("there are no prompts to measure with; give at least one")
    if num_tokens < 1:
        raise ConfigError(f"the number of tokens is {num_tokens}; give 1 or more")
    config = GenerationConfig(temperature=temperature, seed=seed, drafter="none")
    encoded = [(prompt.session, encode_prompt(engine, prompt)) for prompt in prompts]
    replies: list[_Open] = []
    missing = num_tokens
    while missing > 0:
        growing = [reply for reply in replies if not reply.ended]
        if not growing:
            if replies and temperature == 0:
                break
            again = replace(config, seed=(seed + len(replies) // len(prompts)) % 2**64)
            growing = [_Open(name, ids, again, []) for name, ids in encoded]
            replies += growing
        share = max(1, missing // len(growing))
        for reply in growing:
            missing -= _continue(engine, reply, min(share, missing))
            if progress:
                progress(num_tokens - missing)
            if not missing:
                break
    return [
        Text(reply.session, tuple(reply.prompt), tuple(reply.reply))
        for reply in replies
        if reply.reply
    ]


def _continue(engine: AlphaEngine, reply: _Open, num_tokens: int) -> int:
    """Let a reply grow by at most so many tokens; return by how many."""
    ids = [*reply.prompt, *reply.reply]
    room = engine.context - len(ids)
    if room < 1:
        reply.ended = True
        return 0
    result = engine.generate(ids, replace(reply.config, max_tokens=min(num_tokens, room)))
    reply.reply += result.token_ids
    reply.ended = result.finish_reason == "stop"
    return len(result.token_ids)
