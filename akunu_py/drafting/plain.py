"""The drafter that never drafts: plain decoding."""

from collections.abc import Sequence

from akunu_py.protocols import Drafter
from akunu_py.values.types import Draft


class PlainDrafter(Drafter):
    """Proposes nothing (`--drafter none`)."""

    name = "none"

    def observe(self, tokens: Sequence[int]) -> None:
        """Ignore the tokens."""

    def propose(self, limit: int) -> Draft:  # noqa: ARG002 - the protocol's signature
        return Draft.empty(self.name)
