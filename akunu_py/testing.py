"""A toy target and recorded texts, for authors of drafters.

target = ToyTarget([1, 2, 3], vocabulary_size=5, seed=7)
steps = list(decode(target, MyDrafter(), 3, num_draft_tokens=4, max_tokens=9))
assert [t for step in steps for t in step.token_ids] == target.plain([1, 2, 3], 9)

"""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from akunu_py.decoding.budget import Budget, BudgetState
from akunu_py.decoding.loop import Decoding, verify_match
from akunu_py.decoding.shared_passes import SharedPasses
from akunu_py.decoding.stats import StatsRecorder, step_stats
from akunu_py.drafting.auto import AutoDrafter, AutoState
from akunu_py.drafting.registry import default_num_draft_tokens
from akunu_py.protocols import Target
from akunu_py.system.errors import RollbackError
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import DecodeStats, Draft

NextToken = Callable[[tuple[int, ...]], int]


def hashed_choice(vocabulary_size: int, seed: int) -> NextToken:
    """Return a rule that picks the next token by a hash of the whole context."""

    def choose(context: tuple[int, ...]) -> int:
        digest = hashlib.blake2b(repr((seed, context)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % vocabulary_size

    return choose


class ToyTarget(Target):
    """A target whose next token is a function of the context, over a cache of plain token ids.

    `cache` holds what a KV cache would: every row that was fed and not rolled back. A row fed after
    a row that should have been dropped sees the wrong context, so a loop that keeps too many or too
    few rows changes the output.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        *,
        vocabulary_size: int = 5,
        seed: int = 0,
        rule: NextToken | None = None,
        max_draft_tokens: int = 64,
    ) -> None:
        self.rule = rule or hashed_choice(vocabulary_size, seed)
        self.cache: list[int] = list(prompt[:-1])
        self._limit = max_draft_tokens
        self._pending: tuple[int, Draft] | None = None

    def max_draft_tokens(self) -> int:
        return self._limit

    def choose(self, last: int, draft: Draft) -> list[int]:
        """Return the rule's token after `last` and after each node."""
        return [self.rule(context) for context in self._contexts(last, draft)]

    def _contexts(self, last: int, draft: Draft) -> list[tuple[int, ...]]:
        self._pending = (last, draft)
        contexts = [(*self.cache, last)]
        for token, parent in zip(draft.tokens, draft.parents, strict=True):
            contexts.append((*contexts[parent + 1], token))
        return contexts

    def commit(self, accepted: Sequence[int]) -> None:
        """Keep `last` and the accepted tokens."""
        if self._pending is None:
            raise RollbackError("commit without a choose before it")
        last, draft = self._pending
        self._pending = None
        self.cache += [last, *(draft.tokens[node] for node in accepted)]

    def plain(self, prompt: Sequence[int], count: int) -> list[int]:
        """Return the output of decoding without drafts."""
        context = list(prompt)
        for _ in range(count):
            context.append(self.rule(tuple(context)))
        return context[len(prompt) :]


_NO_TOKEN = -1
"""The choice beyond the end of an output, which no draft can match."""

_UNIT_S = 0.01


class _Proposes(Protocol):
    def observe(self, tokens: Sequence[int]) -> None: ...

    def propose(self, limit: int) -> Draft: ...


def play_back(output: Sequence[int], drafter: _Proposes, limit: int) -> tuple[DecodeStats, float]:
    """Play an output back as a target's choices, with at most `limit` tokens drafted for a pass.

    The drafter has observed the prompt. After each committed token the target chooses the recorded
    one, so passes are counted without a model. Tokens beyond the end of the output count as
    drafted, but are never tested. Returns the statistics, whose `target_s` and `commit_s` are 0,
    and the drafter's seconds to observe.
    """
    recorder, clock = StatsRecorder(), time.perf_counter
    position, observe_s = 0, 0.0
    while position < len(output):
        started = clock()
        draft = drafter.propose(limit) if limit > 0 else Draft.empty()
        proposed = clock()
        verification = verify_match(draft, _choices(draft, output, position))
        committed = verification.output(draft)[: len(output) - position]
        recorder.add(
            step_stats(
                draft,
                verification,
                committed,
                propose_s=proposed - started,
                target_s=0.0,
                commit_s=0.0,
            )
        )
        begin = clock()
        drafter.observe(committed)
        observe_s += clock() - begin
        position += len(committed)
    return recorder.stats, observe_s


def _choices(draft: Draft, output: Sequence[int], position: int) -> list[int]:
    """Return the recorded tokens as the target's choices.

    A node off the recorded path gets the token of its depth; no walk reaches such a node.
    """
    depths = [0]
    for parent in draft.parents:
        depths.append(depths[parent + 1] + 1)
    size = len(output) - position
    return [output[position + depth] if depth < size else _NO_TOKEN for depth in depths]


class SharedPass(NamedTuple):
    """A pass of all replies: their tokens, drafted rows, and its cost."""

    tokens: int
    drafted: int
    cost: float


class _RecordedTarget(Target):
    """Chooses the tokens of a recorded output."""

    pipelined = in_flight = False

    def __init__(self, output: Sequence[int]) -> None:
        self._left = deque(output)

    def max_draft_tokens(self) -> int:
        return len(self._left)

    def choose(self, last: int, draft: Draft) -> list[int]:  # noqa: ARG002 - it is recorded
        found = list(self._left)[: 1 + len(draft)]
        return [*found, *[_NO_TOKEN] * (1 + len(draft) - len(found))]

    def commit(self, accepted: Sequence[int]) -> None:
        for _ in range(min(len(self._left), 1 + len(accepted))):
            self._left.popleft()


def play_together(
    texts: Iterable[tuple[Sequence[int], Sequence[int]]], curve: CostCurve, streams: int
) -> Iterator[SharedPass]:
    """Play prompts and outputs back with `auto`, `streams` at once; places are filled again.

    The budget is the engine's own, and learns within a run. Its clock is the curve: a pass of n
    replies and d drafted tokens takes C(n + d). Nothing is in flight, so the first token of a draft
    costs what the others do. Only passes are yielded in which all places are taken.
    """
    state, learned, now_s = BudgetState(), AutoState(), 0.0
    shared = SharedPasses(state.shared_costs)

    def begin(prompt: Sequence[int], output: Sequence[int]) -> tuple[Decoding, Budget, Target]:
        drafter, target = AutoDrafter(state=learned.fork()), _RecordedTarget(output)
        drafter.observe(prompt)
        budget = Budget(
            state, context=len(prompt), target=target, drafter=drafter, name=drafter.name,
            shared=shared,
        )  # fmt: skip
        decoding = Decoding(
            target, drafter, prompt[-1],
            num_draft_tokens=default_num_draft_tokens(drafter.name), max_tokens=len(output),
            budget=budget, position=len(prompt), clock=lambda: now_s,
        )  # fmt: skip
        return decoding, budget, target

    waiting, running = deque(texts), list[tuple[Decoding, Budget, Target]]()
    while True:
        while waiting and len(running) < streams:
            running.append(begin(*waiting.popleft()))
        if len(running) < streams:
            return
        shared.begin(streams, waits=True)
        wanted = [decoding.begin() for decoding, _, _ in running]
        offers = [budget.offer for _, budget, _ in running]
        sizes = iter(shared.share([offer for offer in offers if offer is not None]))
        drafted = tokens = 0
        for (decoding, _, target), (last, draft), offer in zip(
            running, wanted, offers, strict=True
        ):
            kept = decoding.draft = draft if offer is None else draft.first(next(sizes))
            step = decoding.finish(verify_match(kept, target.choose(last, kept)))
            drafted += len(kept)
            tokens += len(step.token_ids)
        cost = curve.cost(streams + drafted)
        taken_s = _UNIT_S * cost
        now_s += taken_s
        shared.observe(
            seconds=taken_s, feeding_s=taken_s, drafted=drafted, tokens=tokens, steady=True
        )
        yield SharedPass(tokens, drafted, cost)
        running = [one for one in running if not one[0].over]
