"""What an engine remembers from reply to reply: texts to draft from, and costs of passes."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from akunu_py.decoding.budget import BudgetState
from akunu_py.drafting import AutoDrafter, ReplyMemory
from akunu_py.models.budget_memory import BudgetMemory
from akunu_py.models.load import LoadedModel
from akunu_py.models.pass_times import PassTimes
from akunu_py.models.session import Session
from akunu_py.values.load_options import KVBits
from akunu_py.values.types import GenerationConfig, RowBits

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Memories:
    """The two memories of one engine; both are saved now and then, and by `close`.

    Costs of passes are read from disk when a budget first needs them, so an engine that never
    drafts within a budget reads no file.
    """

    loaded: LoadedModel
    replies: ReplyMemory
    kv_bits: KVBits | None = None
    block_rows: int | None = None
    _costs: BudgetMemory | None = field(default=None, init=False)

    @property
    def costs(self) -> BudgetMemory:
        """Return the known costs of passes."""
        if self._costs is None:
            self._costs = BudgetMemory(
                self.loaded.description,
                self.loaded.model,
                kv_bits=self.kv_bits,
                block_rows=self.block_rows,
            )
        return self._costs

    def begin_reply(self, config: GenerationConfig) -> Callable[[], None]:
        """Return a function to call when the next reply ends; only `auto` remembers replies."""
        return self.replies.begin_reply() if config.drafter == AutoDrafter.name else lambda: None

    def budgets(self, config: GenerationConfig) -> BudgetState | None:
        """Return the state that budgets share; None if the reply is drafted without a budget."""
        if config.draft_budget == "always" or config.drafter == "none":
            return None
        self.costs.save()
        return self.costs.state

    def row_bits(self, session: Session) -> RowBits:
        """Return whether rows of a reply that has just ended are bit-equal to rows fed alone."""
        context = len(session.rows.tokens)
        try:
            return self.costs.row_bits(context, session.largest_pass, session.bit_equal_to)
        except RuntimeError as error:
            # MLX ran out of memory; the reply itself is complete.
            _log.info("whether rows are bit-equal could not be measured: %s", error)
            return "unknown"

    def measure_drafts(self, *, alone: bool) -> None:
        """Measure passes with drafts only while one reply runs alone."""
        if self._costs is not None:
            for costs in (self._costs.state.costs, self._costs.state.costs_alone):
                costs.shared = not alone

    def learn(self, times: PassTimes) -> None:
        """Take over measured costs of passes."""
        self.costs.learn(times)

    def close(self) -> None:
        if self._costs is not None:
            self._costs.save(new_samples=1)
        self.replies.save()
