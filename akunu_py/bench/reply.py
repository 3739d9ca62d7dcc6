"""One reply of one arm: the row that hit-rate, speed and compare are made of."""

from msgspec import field

from akunu_py.bench.rows import Count, Number, Row
from akunu_py.values.decode_stats import DecodeStats
from akunu_py.values.types import RowBits


class Pass(Row, frozen=True, array_like=True):
    """One pass of decoding: tokens drafted for it (all nodes of a tree), accepted, and output.

    In files it is a list of the three.
    """

    drafted: Count
    accepted: Count
    tokens: Count


class MeasuredReply(Row, frozen=True):
    """The tokens of a reply, its passes, and where the time went.

    The first pass comes with the prompt: speeds of decoding begin behind it, counts of drafts do
    not leave it out.
    """

    token_ids: tuple[Count, ...]
    """An end-of-generation id included."""
    num_first: Count
    """Tokens of the first pass."""
    first_s: Number
    """From the call to the first token on the host: making the drafter counts, and the prompt."""
    decode_s: Number
    """From then to the last token."""
    stats: DecodeStats = field(default_factory=DecodeStats)
    passes: tuple[Pass, ...] = ()
    """Empty where a program has totals alone."""
    finish_reason: str = ""
    prefill_s: Number | None = None
    target_s: Number | None = None
    """Of the passes behind the first, up to the transfer of the chosen ids; akunu's arms alone."""
    peak_memory_bytes: Count | None = None
    row_bits: RowBits = "unknown"
    cpu_s: Number | None = None
    """Processor time of `decode_s`, of all threads of this process."""

    @property
    def num_timed(self) -> int:
        """Tokens of `decode_s`: all but those of the first pass."""
        return len(self.token_ids) - self.num_first

    @property
    def whole_s(self) -> float:
        """From the call to the last token."""
        return self.first_s + self.decode_s
