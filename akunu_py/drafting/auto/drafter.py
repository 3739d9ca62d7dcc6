"""The drafter `auto`: copies from all earlier text, as far as that pays, and its state."""

import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources

from akunu_py.drafting.auto.calibration import Calibration
from akunu_py.drafting.auto.vote import Chain, Situation, make_chain
from akunu_py.drafting.memory import Memory, OccurrenceIndex
from akunu_py.protocols import Drafter
from akunu_py.system.errors import ConfigError
from akunu_py.values.cost_curve import CostCurve
from akunu_py.values.types import Draft

# Start of the average, and the factor by which each pass discounts the past.
_START_TOKENS, _START_COST = 8.0, 6.0
_DECAY = 0.99


class TokenRate:
    """lambda: recent tokens per unit of cost, at least 1.

    The gain of a pass over k draft tokens is its expected tokens less lambda * C(1 + k), the tokens
    that the same time would bring elsewhere (renewal reward; Dinkelbach's ratio of sums).
    """

    __slots__ = ("cost", "tokens")

    def __init__(self) -> None:
        self.tokens = _START_TOKENS
        self.cost = _START_COST

    def begin_reply(self) -> None:
        """Keep the ratio with little weight, so that the new reply soon outweighs earlier ones."""
        self.tokens *= _START_COST / self.cost
        self.cost = _START_COST

    def add(self, tokens: int, cost: float) -> None:
        """Add a pass: the tokens that it committed, and its cost."""
        self.tokens = self.tokens * _DECAY + tokens
        self.cost = self.cost * _DECAY + cost

    @property
    def tokens_per_cost(self) -> float:
        """Return lambda."""
        return max(1.0, self.tokens / self.cost)


class PayingLength:
    """Finds the length of a draft that pays best, for one cost curve."""

    __slots__ = ("_later_costs", "costs", "slopes")

    def __init__(self, curve: CostCurve, longest: int) -> None:
        """Read the costs of 1 to 1 + longest rows off the curve, relative to one row."""
        one = curve.cost(1)
        self.costs = [curve.cost(1 + k) / one for k in range(longest + 1)]
        self._later_costs = self.costs[1:]
        # Entry k: the least cost per further token after k (`CostCurve.slopes`); at the end inf.
        self.slopes = [*(slope / one for slope in curve.slopes(longest)), math.inf, math.inf]

    def best_length(self, probabilities: Sequence[float], pace: float, limit: int) -> int:
        """Return the k, 0 to limit, with the largest expected tokens - pace * C(1 + k).

        `probabilities` are conditional on all earlier tokens being right. Among equally good
        lengths the shortest wins.
        """
        best, length = 1.0 - pace * self.costs[0], 0
        expected = reach = 1.0
        # The probabilities may be fewer than the costs that follow C(1), or more.
        for k, (probability, cost) in enumerate(
            zip(probabilities[:limit], self._later_costs, strict=False), start=1
        ):
            reach *= probability
            expected += reach
            value = expected - pace * cost
            if value > best:
                best, length = value, k
        return length


MAX_LENGTH = 48

# Steeper than most measured curves at first: a draft that pays here pays on those, too.
PRIOR_CURVE = CostCurve({1: 1.0, 3: 1.2, 5: 1.6, 9: 2.4})

_NAME = "auto"
_EMPTY = Draft.empty(_NAME)

PROMPT, REPLY, MEMORY = "prompt", "reply", "memory"
"""Origins of drafted tokens: the text that they were copied from."""


@cache
def start_weights() -> tuple[float, ...]:
    """Return the fitted weights that a new engine starts from."""
    text = resources.files(__package__).joinpath("start_weights.json").read_text("utf-8")
    return tuple(json.loads(text)["weights"])


class AutoState:
    """State that `auto` keeps from reply to reply: calibration, pace and memory.

    A reply joins the memory when the next one begins, or by `finish`.
    """

    def __init__(
        self, memory: Memory | None = None, calibration: Calibration | None = None
    ) -> None:
        """Start with this memory and calibration; without them, empty and as shipped."""
        self.calibration = Calibration(start_weights()) if calibration is None else calibration
        self.pace = TokenRate()
        self.memory = Memory() if memory is None else memory
        self._reply: list[int] = []
        self._index: OccurrenceIndex | None = None

    def fork(self) -> "AutoState":
        """Return a state for a reply that runs beside others; only the reply's tokens are its own.

        Ended by `finish`, the reply joins the common memory.
        """
        other = AutoState(self.memory, self.calibration)
        other.pace = self.pace
        return other

    def remember(self, tokens: Sequence[int]) -> None:
        """Add a text that replies may repeat."""
        self.memory.add(tokens)

    def begin_reply(self) -> tuple[list[int], OccurrenceIndex]:
        """Finish the last reply; return what the new one fills: a list and an index.

        The list is for its tokens; the index, which begins with the memory, for prompt and tokens.
        """
        self.finish()
        self.pace.begin_reply()
        self._index = OccurrenceIndex(self.memory.index)
        return self._reply, self._index

    def finish(self) -> None:
        """Add the tokens of the current reply, if any, to the memory, and forget the reply.

        The memory's index is that of the reply, less the reply's own text.
        """
        if self._index is not None:
            self._index.give_back()
            self._index = None
        reply, self._reply = self._reply, []
        if reply:
            self.memory.add(reply)


class AutoDrafter(Drafter):
    """Drafts from all earlier text, as far as it pays (`--drafter auto`).

    All earlier occurrences of the last tokens vote on each next token. An online estimate gives the
    winner its probability. The draft gets the length with the most expected tokens for its cost,
    often 0. Weights, pace and memory belong to `state` and outlive the reply.

    Raises ConfigError for a `max_length` out of range.
    """

    name = _NAME

    def __init__(
        self,
        *,
        curve: CostCurve = PRIOR_CURVE,
        memory: Memory | None = None,
        state: AutoState | None = None,
        max_length: int = MAX_LENGTH,
    ) -> None:
        """Begin a reply; without a state, a new one with this memory is made."""
        if not 0 <= max_length <= 64:
            raise ConfigError(f"max_length is {max_length}; give 0 to 64")
        self.max_length = max_length
        self.state = AutoState(memory) if state is None else state
        self._reply, self._index = self.state.begin_reply()
        self._index.separate()
        self._at = Situation(memory_end=len(self._index))
        self._prompt_taken = False
        self._chain: Chain | None = None
        self._num_drafted = 0
        self.use_curve(curve)

    def use_curve(self, curve: CostCurve) -> None:
        self._rule = PayingLength(curve, self.max_length)

    def observe(self, tokens: Sequence[int]) -> None:
        if not tokens:
            return
        if not self._prompt_taken:
            self._prompt_taken = True
            self._index.extend(tokens)
            self._at.prompt_end = len(self._index)
            return
        self._reply += tokens
        at, chain = self._at, self._chain
        if chain is None:
            return
        # Which of its tokens, drafted or not, were right?
        self._chain = None
        self.state.pace.add(len(tokens), self._rule.costs[self._num_drafted])
        if not chain.tokens:
            at.last_outcome = min(2, at.last_outcome + 1)
            return
        right, at.bias = self.state.calibration.learn(
            chain.tokens, chain.probabilities, chain.features, tokens,
            self._index.tokens[-1], at.bias,
        )  # fmt: skip
        if right < min(len(chain.tokens), len(tokens)):
            at.last_outcome = 1 if right else 2
            at.streak = 0
        else:
            at.last_outcome = 0
            at.streak += right

    def propose(self, limit: int) -> Draft:
        """Draft the chain that pays best, at most min(limit, max_length) tokens long."""
        limit = min(limit, self.max_length)
        if limit <= 0:
            self._chain = None
            return _EMPTY
        index, rule, pace = self._index, self._rule, self.state.pace.tokens_per_cost
        # All tokens since the last draft at once, since it may have paused.
        index.extend(self._reply[len(index) - self._at.prompt_end :])
        # A pass over `limit` draft tokens decides one more token, of which the calibration learns.
        chain = make_chain(index, self.state.calibration, self._at, limit + 1, rule.slopes, pace)
        length = rule.best_length(chain.probabilities, pace, limit) if chain.tokens else 0
        self._chain, self._num_drafted = chain, length
        if not length:
            return _EMPTY
        origins, places = _origins(chain, length, self._at)
        return Draft.chain(
            chain.tokens[:length],
            self.name,
            chain.match_length,
            tuple(chain.probabilities[:length]),
            origins,
            places=places,
        )

    def count_drafted(self, count: int) -> None:
        """Take note that the pass has `count` draft tokens, where another drafter changed them."""
        self._num_drafted = min(count, self.max_length)


def _origins(chain: Chain, length: int, at: Situation) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the origins of a chain's first `length` tokens, and their places in the prompt."""
    names: list[str] = []
    places: list[int] = []
    for source in chain.sources[:length]:
        if at.memory_end <= source < at.prompt_end:
            names.append(PROMPT)
            places.append(source - at.memory_end)
        else:
            names.append(MEMORY if source < at.memory_end else REPLY)
            places.append(-1)
    return tuple(names), tuple(places)


logger = logging.getLogger(__name__)

SAVE_EVERY_S = 5.0
"""Seconds between two saves: a full memory has 800 kB, and a reply may have a few words."""


class ReplyMemory:
    """The state of `auto` for one engine; a reply joins its memory once, when it ends.

    `clock` returns seconds. If the memory cannot be saved, that is reported once, and the memory
    stays in use.
    """

    def __init__(
        self, memory: Memory | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.state = AutoState(memory)
        self._clock = clock
        self._reply = 0
        self._saved_at = -math.inf
        self._warned = False
        path = self.state.memory.path
        if path is not None:
            # Now, because a warning later would interrupt the text of a reply.
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                self._warn(error)

    def begin_reply(self) -> Callable[[], None]:
        """Finish the last reply; return a function that ends the next one.

        Call this before the next reply's drafter is made. Ending a reply twice, or after a later
        one began, does nothing: a dropped stream may be collected at any time.
        """
        self.state.finish()
        self._reply += 1
        number = self._reply

        def end() -> None:
            if number == self._reply:
                self.state.finish()
                self.save_if_due()

        return end

    def remember(self, tokens: Sequence[int]) -> None:
        """Add a text, such as a file that replies may repeat."""
        self.state.memory.add(tokens)
        self.save_if_due()

    def forget(self) -> None:
        """Empty the memory, also on disk, and start to learn anew.

        Raises ConfigError if the file cannot be changed.
        """
        memory = self.state.memory
        memory.clear()
        self.state = AutoState(memory)
        # The current reply no longer joins any memory.
        self._reply += 1
        try:
            memory.save()
        except OSError as error:
            raise ConfigError(
                f"the memory {memory.path} stays as it was, it cannot be written: {error.strerror}"
            ) from None

    def save_if_due(self) -> None:
        """Save the memory, unless that happened moments ago."""
        if self._clock() - self._saved_at >= SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Save new texts, if the memory is on disk."""
        memory = self.state.memory
        if memory.path is None or not memory.unsaved:
            return
        self._saved_at = self._clock()
        try:
            memory.save()
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        if self._warned:
            return
        self._warned = True
        logger.warning(
            "the memory %s cannot be written (%s); it is kept in RAM until the end",
            self.state.memory.path,
            error.strerror or error,
        )
