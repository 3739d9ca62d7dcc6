"""What one engine learns over its replies: earlier texts, and what passes cost and are."""

import logging
from collections.abc import Callable, Sequence

from akunu_py.decoding.budget import BudgetState
from akunu_py.drafting import AutoDrafter, AutoState, Memory, ReplyMemory
from akunu_py.models.budget_memory import BudgetMemory
from akunu_py.models.load import LoadedModel
from akunu_py.models.pass_times import PassTimes
from akunu_py.models.session import Session
from akunu_py.types import GenerationConfig, RowBits

_log = logging.getLogger(__name__)


class Learning:
    """The memories of one engine; both are written down now and then, and by `close`.

    Costs of passes are looked up when a budget first asks for them: an engine that never drafts
    within one reads no file.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        memory: Memory,
        *,
        kv_bits: int | None = None,
        block_rows: int | None = None,
    ) -> None:
        self.replies = ReplyMemory(memory)
        self._loaded: LoadedModel | None = loaded
        self._kv_bits = kv_bits
        self._block_rows = block_rows
        self._costs: BudgetMemory | None = None

    @property
    def auto_state(self) -> AutoState:
        """Return what the drafter `auto` begins its next reply with."""
        return self.replies.state

    @property
    def costs(self) -> BudgetMemory:
        """Return what passes are known to cost."""
        if self._costs is None:
            assert self._loaded is not None  # noqa: S101 - a closed engine asks nothing
            self._costs = BudgetMemory(
                self._loaded.description,
                self._loaded.model,
                kv_bits=self._kv_bits,
                block_rows=self._block_rows,
            )
        return self._costs

    def begin_reply(self, config: GenerationConfig) -> Callable[[], None]:
        """Return what is to be called when the reply to come ends; of use to `auto` alone."""
        return self.replies.begin_reply() if config.drafter == AutoDrafter.name else _nothing

    def budgets(self, config: GenerationConfig) -> BudgetState | None:
        """Return what budgets have learned so far, written down now and then; None without one."""
        if config.draft_budget == "always" or config.drafter == "none":
            return None
        self.costs.save()
        return self.costs.state

    def row_bits(self, session: Session) -> RowBits:
        """Return whether rows have the bits of passes over one; measured once a machine."""
        try:
            equal = self.costs.rows_bit_equal(session.rows_bit_equal)
        except RuntimeError as error:
            # MLX ran out of memory; the reply is there all the same.
            _log.info("whether rows are bit-equal could not be measured: %s", error)
            return "unknown"
        return "equal" if equal else "different"

    def learn(self, times: PassTimes) -> None:
        """Take over what passes were measured to cost."""
        self.costs.learn(times)

    def remember(self, tokens: Sequence[int]) -> None:
        """Add a text that replies may repeat."""
        self.replies.remember(tokens)

    def forget(self) -> None:
        """Forget earlier replies, texts and weights; raises as `ReplyMemory.forget` does."""
        self.replies.forget()

    def close(self) -> None:
        """Write everything down and let go of the model."""
        if self._costs is not None:
            self._costs.save(new_samples=1)
        self.replies.save()
        self._loaded = None


def _nothing() -> None:
    """Learn nothing from a reply."""
