"""Several replies at once next to one at a time: the same prompts in one run."""

import threading
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter, process_time

from msgspec.structs import replace as replace_row

import akunu_py
from akunu_py.bench.engine_arm import measure_costs
from akunu_py.bench.reply import MeasuredReply
from akunu_py.bench.runner import Arm, Item, Progress, run_arms
from akunu_py.bench.speed import SpeedReport, fitting_items
from akunu_py.drafting import AutoState
from akunu_py.engine.engine import Engine
from akunu_py.engine.lane import Lane, ReplyInTurns, choose_steps
from akunu_py.system.errors import ConfigError
from akunu_py.values.types import (
    DecodeStats,
    GenerationConfig,
    GenerationResult,
    StreamEvent,
)

KINDS = {
    "prose": "new text", "novel": "new text",
    "completion": "code", "boilerplate": "code", "config": "code",
    "edit": "edits", "session": "edits",
}  # fmt: skip
"""The kind of text of each category of the shipped prompts."""


class StreamsArm:
    """Replies to all prompts of an item, up to `streams` at once; places are filled as they end.

    Rounds are timed in which all places are taken, and each reply gets a step: a prompt is read
    before its reply joins them. The first pass behind the prompt counts. Lane i keeps the rows of
    the item's prompt i, so arms with the same `lanes` read it once.
    """

    steady = False

    def __init__(
        self,
        name: str,
        engine: Engine,
        config: GenerationConfig,
        streams: int,
        *,
        plain: str,
        lanes: list[Lane],
    ) -> None:
        self.name, self.plain = name, plain
        self.version = f"akunu {akunu_py.__version__}"
        self.about = f"{engine.description.weights} weights, up to {streams} replies at once"
        self._engine, self._config, self._streams = engine, config, streams
        self._lanes = lanes
        self._learned = AutoState()

    def forget(self) -> None:
        self._learned = AutoState()

    def reply(self, item: Item) -> MeasuredReply:
        """Answer the prompts; raises what ends one of the replies."""
        prompts = (item.prompt, *item.beside)
        while len(self._lanes) < len(prompts):
            self._lanes.append(self._engine.lane())
        shared = self._engine.shared_passes()
        waiting = deque(
            _Reply(lane.turns(call, self._learned, threading.Event(), shared=shared))
            for lane, call in zip(
                self._lanes,
                [self._engine.check(prompt, self._config) for prompt in prompts],
                strict=False,
            )
        )
        replies, running = tuple(waiting), list[_Reply]()
        started, decode_s, cpu_s, timed = perf_counter(), 0.0, 0.0, 0
        try:
            while waiting or running:
                while waiting and len(running) < self._streams:
                    running.append(waiting.popleft())
                    running[-1].read_prompt()
                self._engine.measure_drafts(alone=len(running) == 1)
                began, cpu_began, tokens = perf_counter(), process_time(), 0
                for one, made in choose_steps(self._engine.joined_passes, shared, running):
                    tokens += one.take(made)
                if len(running) == self._streams:
                    decode_s += perf_counter() - began
                    cpu_s += process_time() - cpu_began
                    timed += tokens
                running = [one for one in running if not one.over]
        finally:
            self._engine.measure_drafts(alone=True)
            for one in replies:
                one.turns.close()
        results = [one.result for one in replies if one.result is not None]
        token_ids = tuple(token for result in results for token in result.token_ids)
        return MeasuredReply(
            token_ids=token_ids,
            num_first=len(token_ids) - timed,
            first_s=max(0.0, perf_counter() - started - decode_s),
            decode_s=decode_s,
            cpu_s=cpu_s,
            stats=sum((result.stats for result in results), DecodeStats()),
        )

    def close(self) -> None:
        """Need nothing: lanes and engine are the caller's."""


class _Reply(ReplyInTurns):
    result: GenerationResult | None = None

    def read_prompt(self) -> None:
        while not (self.shares or self.over):
            self.take(self.turn())

    def take(self, made: StreamEvent | BaseException | None) -> int:
        """Take what a turn gave; return its number of tokens."""
        if isinstance(made, BaseException):
            raise made
        if made is None:
            return 0
        self.result = made.result
        return len(made.token_ids)


def run_streams(
    engine: Engine,
    items: Sequence[Item],
    *,
    streams: Sequence[int],
    drafters: Sequence[str] = ("none", "auto"),
    num_draft_tokens: int | None = None,
    max_tokens: int = 96,
    temperature: float = 0.0,
    rounds: int = 1,
    with_costs: bool = True,
    progress: Progress | None = None,
) -> SpeedReport:
    """Answer all items with each drafter and each number of streams, `rounds` times.

    As many prompts as the largest number make an item; see `batches`. Each arm is compared with
    its drafter's at the first number, and with the first drafter's at its own number. The other
    arguments are as in `run_speed`, which says what is raised, too.
    """
    fitting, failures = fitting_items(engine, items, max_tokens)
    lanes: list[Lane] = []
    arms: list[Arm] = []
    beside: dict[str, str] = {}
    config = GenerationConfig(
        max_tokens=max_tokens, seed=0, num_draft_tokens=num_draft_tokens, temperature=temperature
    )
    for drafter in dict.fromkeys(drafters):
        for count in dict.fromkeys(streams):
            name, first, plain = (
                f"{one} x{number}"
                for one, number in ((drafter, count), (drafter, streams[0]), (drafters[0], count))
            )
            beside[name] = plain
            own = replace(config, drafter=drafter)
            arms.append(StreamsArm(name, engine, own, count, plain=first, lanes=lanes))
    together = batches(fitting, max(streams))
    times = measure_costs(engine, fitting[0].prompt, repeats=5) if with_costs else None
    # Tries whether passes can be joined, which no arm is to pay for.
    engine.joined_passes()
    try:
        done = run_arms(arms, together, rounds=rounds, progress=progress)
    finally:
        for lane in lanes:
            lane.close()
    return SpeedReport(
        tuple(beside), done.items, times, (*failures, *done.failures), done.finished,
        against={arm.name: arm.plain for arm in arms}, beside=beside,
    )  # fmt: skip


def batches(items: Sequence[Item], size: int) -> list[Item]:
    """Return items of `size` prompts each, of one kind of text; prompts left over are dropped.

    Raises ConfigError where no kind has that many prompts.
    """
    kinds: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        kinds[KINDS.get(item.category, item.category)].append(item)
    found: list[Item] = []
    for kind, own in kinds.items():
        for start in range(0, len(own) - size + 1, size):
            first, *others = own[start : start + size]
            name = f"{first.id} and {len(others)} more" if others else first.id
            beside = tuple(item.prompt for item in others)
            found.append(replace_row(first, id=name, session=name, category=kind, beside=beside))
    if not found:
        raise ConfigError(
            f"{size} replies at once need as many prompts of one kind of text, and there are "
            f"{len(items)} in all"
        )
    return found
