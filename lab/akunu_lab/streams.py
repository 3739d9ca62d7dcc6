"""Several replies at once next to one at a time: the same prompts in one run."""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter, process_time
from typing import Any

from msgspec.structs import asdict
from msgspec.structs import replace as replace_row

import akunu_py
from akunu_py.api import (
    ArmFigures,
    AutoDrafter,
    Column,
    ConfigError,
    DecodeStats,
    Engine,
    Failure,
    Findings,
    GenerationConfig,
    Item,
    ItemReplies,
    MeasuredReply,
    Table,
    run_arms,
)

KINDS = {
    "prose": "new text", "novel": "new text",
    "completion": "code", "boilerplate": "code", "config": "code",
    "edit": "edits", "session": "edits",
}  # fmt: skip
"""The kind of text of each category of the shipped prompts."""

_FIGURES = (
    Column("tokens_per_cpu_s", "tokens/\nCPU s", ".1f"),
    Column("tokens_per_s", "tokens/s", ".1f"),
    Column("tokens_per_pass", "tokens\na pass", ".2f"),
    Column("hit_rate", "hit\nrate", ".0%"),
)
_COLUMNS = (
    Column("arm", "arm"),
    *Column.ratio("ratio", "of the first\nnumber", ".2f"),
    *Column.ratio("beside", "of the first\ndrafter", ".2f"),
    *_FIGURES,
    Column("identical", "same"),
)
_KIND_COLUMNS = (
    Column("kind", "text"),
    Column("arm", "arm"),
    _FIGURES[0],
    *Column.ratio("beside", "of the first\ndrafter", ".3f"),
)


class StreamsArm:
    """Replies to all prompts of an item, up to `streams` at once; places are filled as they end.

    Rounds are timed in which all places are taken, and each reply gets a step: a prompt is read
    before its reply joins them. The first pass behind the prompt counts. Lane i keeps the KV
    entries of the item's prompt i, so arms with the same `lanes` read it once.
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
        lanes: list[Any],
    ) -> None:
        self.name, self.plain = name, plain
        self.version = f"akunu {akunu_py.__version__}"
        self.about = f"{engine.description.weights} weights, up to {streams} replies at once"
        self._engine, self._config, self._streams = engine, config, streams
        self._lanes = lanes
        self.forget()

    def forget(self) -> None:
        self._learned = AutoDrafter().state

    def reply(self, item: Item) -> MeasuredReply:
        """Answer the prompts; raises what ends one of the replies."""
        engine, prompts = self._engine, (item.prompt, *item.beside)
        while len(self._lanes) < len(prompts):
            self._lanes.append(engine.lane())
        shared = engine.shared_passes()
        replies = [
            lane.begin(call, self._learned, shared)
            for lane, call in zip(
                self._lanes,
                [engine.check(prompt, self._config) for prompt in prompts],
                strict=False,
            )
        ]
        results: dict[Any, Any] = {}
        waiting, running = deque(replies), list[Any]()
        started, decode_s, cpu_s, timed = perf_counter(), 0.0, 0.0, 0

        def take(one: Any, made: Any) -> int:
            """Take what a turn gave; return its number of tokens."""
            if isinstance(made, BaseException):
                raise made
            if made is None:
                return 0
            results[one] = made.result
            return len(made.token_ids)

        try:
            while waiting or running:
                while waiting and len(running) < self._streams:
                    one = waiting.popleft()
                    running.append(one)
                    while not (one.shares or one.over):
                        take(one, one.turn())
                engine.measure_drafts(alone=len(running) == 1)
                began, cpu_began, tokens = perf_counter(), process_time(), 0
                for one, made in engine.choose_steps(shared, running):
                    tokens += take(one, made)
                if len(running) == self._streams:
                    decode_s += perf_counter() - began
                    cpu_s += process_time() - cpu_began
                    timed += tokens
                running = [one for one in running if not one.over]
        finally:
            engine.measure_drafts(alone=True)
            for one in replies:
                one.turns.close()
        ended = [results[one] for one in replies if results.get(one) is not None]
        token_ids = tuple(token for result in ended for token in result.token_ids)
        return MeasuredReply(
            token_ids=token_ids,
            num_first=len(token_ids) - timed,
            first_s=max(0.0, perf_counter() - started - decode_s),
            decode_s=decode_s,
            cpu_s=cpu_s,
            stats=sum((result.stats for result in ended), DecodeStats()),
        )

    def close(self) -> None:
        """Need nothing: lanes and engine are the caller's."""


@dataclass(frozen=True, slots=True)
class StreamsReport:
    """The replies of all arms.

    Ratios are of tokens per processor second: to the arm of `against`, at the drafter's first
    number of replies, and to that of `beside`, the first drafter's at the same number.
    """

    runs: tuple[ItemReplies, ...]
    against: Mapping[str, str]
    beside: Mapping[str, str]
    failures: tuple[Failure, ...]
    finished: bool

    def _figures(self, kind: str = "") -> Iterator[dict[str, Any]]:
        """Yield the figures of each arm that answered anything, of all texts or of one kind."""
        runs = [run for run in self.runs if kind in ("", run.item.category)]
        for name, first in self.against.items():
            arm = ArmFigures.of(runs, name)
            if not arm.replies:
                continue
            same, plain = arm.identity(first), self.beside[name]
            yield {
                "kind": kind,
                "arm": name,
                "pairs": same.pairs,
                "identical": f"{same.identical}/{same.pairs}",
                "token_hash": arm.digest,
                "tokens_per_cpu_s": arm.tokens_per_cpu_s,
                "tokens_per_s": arm.tokens_per_s,
                "tokens_per_pass": arm.stats.tokens_per_pass,
                "hit_rate": arm.stats.hit_rate,
                "ratio": arm.over(first, "processor"),
                "beside": arm.over(plain, "processor"),
            }

    def findings(self, failures: Sequence[Failure] = ()) -> Findings:
        """Return the figures, tables and items; `failures` are those from before the run."""
        arms = list(self._figures())
        kinds = dict.fromkeys(run.item.category for run in self.runs)
        of_kinds = (
            arm
            for kind in kinds
            for arm in self._figures(kind)
            if self.beside[arm["arm"]] != arm["arm"]
        )
        fixed = ("pairs", "identical", "token_hash")
        varying = (*(column.name for column in _FIGURES), "ratio", "beside")
        return Findings(
            deterministic={
                "arms": {arm["arm"]: {name: arm[name] for name in fixed} for arm in arms}
            },
            timing={
                "ratios": {arm["arm"]: arm["ratio"] for arm in arms},
                "arms": {arm["arm"]: {name: arm[name] for name in varying} for arm in arms},
            },
            tables=(
                Table.of(
                    "streams", "Replies at once, by tokens per processor second", _COLUMNS, arms
                ),
                Table.of("kinds", "By kind of text", _KIND_COLUMNS, of_kinds),
            )
            if arms
            else (),
            items=tuple(
                {"category": run.item.category, "arm": arm, **asdict(reply)}
                | {"id": f"{run.item.id} by {arm}, item {number}"}
                for number, run in enumerate(self.runs, start=1)
                for arm, reply in run.replies.items()
            ),
            failures=(*failures, *self.failures),
            finished=self.finished,
        )


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
    progress: Any = None,
) -> StreamsReport:
    """Answer all items with each drafter and each number of streams, `rounds` times.

    As many prompts as the largest number make an item; see `batches`. The cost of passes is
    measured first, and the budgets of all arms get it.

    Raises ConfigError where no kind of text has enough prompts, and for an unknown drafter.
    """
    together = batches(items, max(streams))
    lanes: list[Any] = []
    arms: list[StreamsArm] = []
    beside: dict[str, str] = {}
    config = GenerationConfig(
        max_tokens=max_tokens, seed=0, num_draft_tokens=num_draft_tokens, temperature=temperature
    )
    # A drafter and the first one run one behind the other, at the same speed of the machine.
    for count in dict.fromkeys(streams):
        for drafter in dict.fromkeys(drafters):
            name, first, plain = (
                f"{one} x{number}"
                for one, number in ((drafter, count), (drafter, streams[0]), (drafters[0], count))
            )
            beside[name] = plain
            own = replace(config, drafter=drafter)
            arms.append(StreamsArm(name, engine, own, count, plain=first, lanes=lanes))
    if with_costs:
        engine.tune(together[0].prompt[:128], repeats=5)
    # Tries whether passes can be joined, which no arm is to pay for.
    engine.joined_passes()
    try:
        done = run_arms(arms, together, rounds=rounds, progress=progress)
    finally:
        for lane in lanes:
            lane.close()
    against = {arm.name: arm.plain for arm in arms}
    return StreamsReport(done.items, against, beside, done.failures, done.finished)


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
