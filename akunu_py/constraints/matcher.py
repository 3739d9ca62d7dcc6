"""The state of a constraint along a reply: what may come next, what must, and where it ends."""

from collections.abc import Sequence

import numpy as np
from llguidance import LLMatcher, LLParserLimits
from numpy.typing import NDArray

from akunu_py.constraint import Constraint
from akunu_py.constraints.grammar import Opening, source_of
from akunu_py.constraints.vocabulary import MatcherVocabulary
from akunu_py.errors import ConstraintError

_LIMITS = LLParserLimits(verbose_errors=False)

Mask = NDArray[np.uint32]
"""A set of token ids: id i is bit i % 32 of word i // 32."""


class Matcher:
    """One reply's place in its constraint. Only `advance` and `rollback` move it.

    Paths are tokens that might follow the reply so far, such as a draft's. An end token is allowed
    where the constraint may end, and nothing else once it is complete.

    Raises ConstraintError for a grammar that cannot be compiled or that allows no reply.
    """

    def __init__(self, vocabulary: MatcherVocabulary, grammar: str) -> None:
        self._size = vocabulary.size
        self._words = -(-vocabulary.size // 32)
        self._end_ids = vocabulary.end_ids
        self._inner = LLMatcher(vocabulary.library, grammar, log_level=0, limits=_LIMITS)
        # Tokens behind the reply so far that the inner matcher has taken in for a mask.
        self._ahead: list[int] = []
        self._ended = False
        self._forced: tuple[int, ...] | None = None
        self.num_tokens = 0
        if self._inner.is_error():
            raise ConstraintError(_reason(self._inner))
        self.mask(())

    @property
    def ended(self) -> bool:
        """Whether the reply has its end token."""
        return self._ended

    @property
    def stopped(self) -> bool:
        """Whether the reply is complete: nothing but an end token may follow."""
        self._go_to(())
        return self._ended or bool(self._inner.is_stopped())

    @property
    def may_end(self) -> bool:
        """Whether an end token may follow."""
        self._go_to(())
        return self._ended or bool(self._inner.is_accepting())

    def mask(self, path: Sequence[int]) -> Mask:
        """Return the tokens allowed after a path, uint32 [ceil(size / 32)].

        After a path that is not allowed itself every token is: nothing gets there.

        Raises ConstraintError if no token is allowed, or if the grammar takes too long.
        """
        found = np.zeros(self._words, np.uint32)
        if not self._go_to(path):
            found[:] = 0xFFFFFFFF
            return found
        self._inner.unsafe_compute_mask_ptr(found.ctypes.data, found.nbytes)
        self._check()
        if not found.any():
            raise ConstraintError(
                "the constraint is at a dead end: no token of the model's vocabulary may follow; "
                "check whether the grammar can end, and whether the model can write its characters"
            )
        return found

    def validate(self, tokens: Sequence[int]) -> int:
        """Return how many of these tokens may follow the reply so far, one after another."""
        self._go_to(())
        if self._ended:
            return 0
        ends = (place for place, token in enumerate(tokens) if token in self._end_ids)
        end = next(ends, None)
        count = int(self._inner.validate_tokens(list(tokens[:end])))
        self._check()
        return count + 1 if count == end and self._ends_with(tokens[: end + 1]) else count

    def forced(self) -> tuple[int, ...]:
        """Return the tokens that must follow the reply so far; masks allow no others there."""
        if self._forced is None:
            self._go_to(())
            over = self._ended or self._inner.is_stopped()
            self._forced = () if over else tuple(self._inner.compute_ff_tokens())
            self._check()
        return self._forced

    def advance(self, tokens: Sequence[int]) -> None:
        """Add tokens to the reply; raises ConstraintError for one that is not allowed.

        An end token ends the reply; nothing follows it.
        """
        self._go_to(())
        self._forced = None
        for token in tokens:
            if self._ended or not self._takes(token):
                raise ConstraintError(f"the token {token} is not allowed by the constraint")
            self.num_tokens += 1

    def rollback(self, count: int) -> None:
        """Take the last tokens back."""
        self._go_to(())
        if not 0 <= count <= self.num_tokens:
            raise ConstraintError(f"{count} of {self.num_tokens} tokens cannot be taken back")
        self.num_tokens -= count
        self._forced = None
        if self._ended and count:
            # The inner matcher did not take the end token in.
            self._ended = False
            count -= 1
        self._inner.rollback(count)
        self._check()

    def _takes(self, token: int) -> bool:
        """Take a token into the inner matcher, or note the end; return whether it is allowed."""
        if token in self._end_ids:
            self._ended = self._ends_with((token,))
            return self._ended
        taken = self._inner.try_consume_tokens([token]) == 1
        self._check()
        return taken

    def _ends_with(self, path: Sequence[int]) -> bool:
        """Return whether the end token at the end of a path is allowed there.

        It is where the constraint may end, and where a grammar calls it by its name.
        """
        word, bit = divmod(path[-1], 32)
        return bool(self.mask(path[:-1])[word] >> bit & 1)

    def _go_to(self, path: Sequence[int]) -> bool:
        """Move the inner matcher behind a path; return whether the path is allowed."""
        if self._ended:
            return not path
        ahead = self._ahead
        shared = 0
        while shared < min(len(ahead), len(path)) and ahead[shared] == path[shared]:
            shared += 1
        if shared < len(ahead):
            self._inner.rollback(len(ahead) - shared)
            del ahead[shared:]
        rest = list(path[shared:])
        if rest:
            taken = int(self._inner.try_consume_tokens(rest))
            ahead += rest[:taken]
        self._check()
        return len(ahead) == len(path)

    def _check(self) -> None:
        if self._inner.is_error():
            raise ConstraintError(
                f"the constraint cannot be followed any further ({_reason(self._inner)}); make it "
                "simpler"
            )


def make_matcher(
    constraint: Constraint, vocabulary: MatcherVocabulary, opening: Opening | None = None
) -> Matcher:
    """Return the matcher of a reply's constraint; `opening` is what may come before it.

    Raises ConstraintError for a source that is malformed, unsatisfiable or too complex, or that has
    a feature which llguidance lacks.
    """
    try:
        return Matcher(vocabulary, source_of(constraint, vocabulary, opening))
    except (ConstraintError, ValueError) as error:
        raise ConstraintError(f"{constraint.kind}: {error}") from None


def _reason(inner: LLMatcher) -> str:
    reason = str(inner.get_error()).strip().partition("\n<")[0]
    # llguidance's own words for a limit of its numbers, such as 65,535 symbols of a grammar.
    if reason.startswith("panic"):
        return "it is too large to compile; make it smaller, or offer fewer tools"
    return reason or "the constraint failed"
