"""The state of a constraint along a reply: what may come next, what must, and where it ends."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from akunu_py.constraints.grammar import Opening, source_of
from akunu_py.constraints.trial import check_cost
from akunu_py.constraints.vocabulary import MatcherVocabulary
from akunu_py.system.errors import ConstraintError
from akunu_py.values.constraint import Constraint

_DEAD_END = (
    "no token of the model's vocabulary may come next; check whether the form can end, and whether "
    "the model can write its characters"
)

_TOO_COMPLEX = re.compile(r"too many|too large|too deeply|max is|limit|fuel", re.IGNORECASE)

_ADVICE = re.compile(r"; [^;)]*(?=[;)]|$)")
"""What llguidance tells its programmers, behind the reason."""

_IN_EXPRESSION = re.compile(
    r"regex parse error:\n {4}(?P<shown>[^\n]*)\n {4}(?P<before> *)(?P<marks>\^+)[^\n]*\n"
    r"error: (?P<what>[^\n]*)"
)
"""An expression, marks under a part of it, and what is wrong there."""

_IN_GRAMMAR = re.compile(r"(?:at )?(?P<line>\d+)\((?P<column>\d+)\): (?P<what>[^\n]*)")
"""A place in a Lark grammar; behind it the grammar is drawn with a mark."""

_INVALID = re.compile(r'invalid regex ".*" \(in regex\): |failed to compile JSON schema: ')

_IN_OTHER_WORDS = (
    (r"oneOf constraints are not supported.*", "branches of a oneOf may overlap; use anyOf"),
    (r"Unimplemented keys: \[(.*)\]", r"a grammar cannot follow \1; leave it out"),
    (r"Unknown format: (.*)", r"the format \1 is not known; leave it out, or give a pattern"),
    (
        r"Resource '(.*)' is not present in a registry.*",
        r"\1 is another document; give it in $defs",
    ),
)
"""What llguidance advises its programmers, for whoever wrote the schema."""

_MOST_SHOWN = 60
"""Characters of an expression in a message."""


def reason_of(said: str) -> str:
    """Return the message of an error of llguidance, without its drawings of the place."""
    said = said.strip().partition("\n<")[0]
    # llguidance's own words for a limit of its numbers, such as 65,535 symbols of a grammar.
    if said.startswith("panic"):
        return "it is too large to compile; make it smaller, or offer fewer tools"
    if said.startswith("NoExtension"):
        return _DEAD_END
    if _TOO_COMPLEX.search(first := said.partition("\n")[0]):
        return f"it is too complex ({_ADVICE.sub('', first)}); make it simpler"
    if found := _IN_EXPRESSION.search(said):
        start = len(found["before"])
        part = found["shown"][start : start + len(found["marks"])]
        # On the way into a Lark grammar each / got a backslash.
        shown, before = (
            text.replace("\\/", "/") for text in (found["shown"], found["shown"][:start])
        )
        return f"{found['what']}: {_short(part)} at character {len(before) + 1} of {_short(shown)}"
    if found := _IN_GRAMMAR.match(said):
        what = _INVALID.sub("", found["what"])
        # The expression, or a schema's word, is in the message; the grammar may be akunu's.
        place = f" (line {found['line']}, character {found['column']})"
        said = what if what != found["what"] else what + place
    for pattern, words in _IN_OTHER_WORDS:
        said = re.sub(f"^{pattern}$", words, said)
    return said or "the constraint failed"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


Mask = NDArray[np.uint32]
"""A set of token ids: id i is bit i % 32 of word i // 32."""


class Matcher:
    """One reply's place in its constraint. Only `advance` and `rollback` move it.

    Paths are tokens that might follow the reply so far, such as a draft's. An end token is allowed
    where the constraint may end, and nothing else once it is complete.

    Args:
        vocabulary: the model's.
        grammar: llguidance's, in JSON.
        name: what the caller calls the constraint, with which its errors begin.
        optional: the grammar of replies that the model must choose unasked; None for none.

    Raises ConstraintError for a grammar that cannot be compiled or that allows no reply.

    """

    def __init__(
        self, vocabulary: MatcherVocabulary, grammar: str, name: str, optional: str | None = None
    ) -> None:
        self._name = name
        self._optional = Matcher(vocabulary, optional, name) if optional else None
        self._words = -(-vocabulary.size // 32)
        self._end_ids = vocabulary.end_ids
        self._inner = vocabulary.matcher(grammar)
        # The tokens that the inner matcher has taken in: the reply's, and behind them a path's.
        self._taken: list[int] = []
        # What must follow the first n of them: a run of tokens, and where in it they are. None
        # where nobody asked yet.
        self._forced: list[tuple[tuple[int, ...], int] | None] = [None]
        self._ended = False
        self.num_tokens = 0
        if self._inner.is_error():
            raise ConstraintError(f"{name}: {reason_of(self._inner.get_error())}")
        self._untouched = self._inner.deep_copy()
        self.mask(())

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def may_end(self) -> bool:
        """Whether an end token may follow."""
        self._go_to(())
        return self._ended or bool(self._inner.is_accepting())

    def mask(self, path: Sequence[int]) -> Mask:
        """Return the tokens that may follow a path: all if it is not allowed, none at a dead end.

        Raises ConstraintError at a dead end of the reply itself.
        """
        try:
            return self._mask(path)
        except ConstraintError:
            if not path:
                raise
            # The reply may go another way, but the inner matcher never leaves an error.
            self._begin_again()
            return np.zeros(self._words, np.uint32)

    def _begin_again(self) -> None:
        del self._taken[self.num_tokens :], self._forced[self.num_tokens + 1 :]
        self._inner = self._untouched.deep_copy()
        self._inner.consume_tokens(self._taken)
        self._check()

    def _mask(self, path: Sequence[int]) -> Mask:
        found = np.zeros(self._words, np.uint32)
        if not self._go_to(path):
            found[:] = 0xFFFFFFFF
            return found
        run, start = self._forced_run()
        if start < len(run):
            word, bit = divmod(run[start], 32)
            found[word] = 1 << bit
            return found
        self._inner.unsafe_compute_mask_ptr(found.ctypes.data, found.nbytes)
        self._check()
        return found

    def optional(self, path: Sequence[int]) -> Mask | None:
        other = self._optional
        if other is None or self._ended or other.num_tokens < self.num_tokens:
            return None
        if not other._go_to(path):  # noqa: SLF001 - of this class
            return None
        found, every = other.mask(path), self.mask(path)
        return found & every if np.any(found & every) and np.any(every & ~found) else None

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

    def forced_tokens(self) -> tuple[int, ...]:
        """Return the tokens that must follow the reply so far; masks allow no others there."""
        self._go_to(())
        run, start = ((), 0) if self._ended else self._forced_run()
        return run[start:]

    def advance(self, tokens: Sequence[int]) -> None:
        """Add tokens to the reply; raises ConstraintError for one that is not allowed.

        Then none is added. An end token ends the reply; nothing follows it.
        """
        if not tokens:
            return
        ends = tokens[-1] in self._end_ids
        path = tokens[:-1] if ends else tokens
        allowed = 0
        if not self._ended:
            self._go_to(path)
            allowed = len(self._taken) - self.num_tokens
            if ends and allowed == len(path) and self._ends_with(tokens):
                allowed += 1
        if allowed < len(tokens):
            raise ConstraintError(f"the token {tokens[allowed]} is not allowed by the constraint")
        other = self._optional
        # It stays where the reply took another way.
        if other is not None and other.num_tokens == self.num_tokens:
            other.advance(tokens[: other.validate(tokens)])
        self.num_tokens += allowed
        self._ended = ends

    def rollback(self, count: int) -> None:
        """Take the last tokens back."""
        if not 0 <= count <= self.num_tokens:
            raise ConstraintError(f"{count} of {self.num_tokens} tokens cannot be taken back")
        if count:
            self.num_tokens -= count
            if self._optional is not None:
                self._optional.rollback(max(0, self._optional.num_tokens - self.num_tokens))
            # The inner matcher did not take an end token in. It goes back when it is asked.
            self._ended = False

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
        taken = self._taken
        place = self.num_tokens
        for token, held in zip(path, taken[place:], strict=False):
            if token != held:
                break
            place += 1
        if place < len(taken):
            self._inner.rollback(len(taken) - place)
            del taken[place:], self._forced[place + 1 :]
        for token in path[place - self.num_tokens :]:
            run, start = self._forced_run()
            if self._inner.try_consume_tokens([token]) != 1:
                break
            taken.append(token)
            goes_on = start + 1 < len(run) and token == run[start]
            self._forced.append((run, start + 1) if goes_on else None)
        self._check()
        return len(taken) == self.num_tokens + len(path)

    def _forced_run(self) -> tuple[tuple[int, ...], int]:
        """Return a run of tokens, and from where in it they must follow the inner matcher's.

        llguidance would spell the rest of a run again after each of its tokens: that takes longer,
        and nothing promises the same tokens.
        """
        known = self._forced[-1]
        if known is None:
            known = tuple(self._inner.compute_ff_tokens()), 0
            self._check()
            self._forced[-1] = known
        return known

    def _check(self) -> None:
        if self._inner.is_error():
            reason = reason_of(self._inner.get_error())
            raise ConstraintError(f"{self._name}: the reply cannot go on: {reason}")


@dataclass(slots=True, eq=False)
class PendingMatcher:
    """A matcher that is compiled when it is asked for, since that may take seconds.

    The fields are those of a `Matcher`.
    """

    vocabulary: MatcherVocabulary
    grammar: str
    name: str
    optional: str | None = None
    _matcher: Matcher | None = field(default=None, init=False)

    @property
    def compiled(self) -> bool:
        """Whether the constraint is compiled."""
        return self._matcher is not None

    def compile(self) -> Matcher:
        """Return the matcher, compiled at the first call.

        Raises ConstraintError for a source that is malformed, unsatisfiable or too expensive to
        compile, or that has a feature which llguidance lacks.
        """
        if self._matcher is None:
            for grammar in filter(None, (self.grammar, self.optional)):
                try:
                    check_cost(grammar, self.vocabulary.size)
                except ConstraintError as error:
                    raise ConstraintError(f"{self.name}: {error.message}") from None
            self._matcher = Matcher(self.vocabulary, self.grammar, self.name, self.optional)
        return self._matcher


def pending_matcher(
    constraint: Constraint, vocabulary: MatcherVocabulary, opening: Opening | None = None
) -> PendingMatcher:
    """Return the matcher of a reply's constraint; `opening` is what may come before it.

    Raises ConstraintError for an expression that is malformed.
    """
    try:
        source = source_of(constraint, vocabulary, opening)
        optional = None
        if constraint.optional:
            unasked = replace(constraint, source=constraint.optional, optional="")
            optional = source_of(unasked, vocabulary, opening)
    except ValueError as error:
        raise ConstraintError(f"{constraint.kind}: {error}") from None
    return PendingMatcher(vocabulary, source, constraint.kind, optional)


def make_matcher(
    constraint: Constraint, vocabulary: MatcherVocabulary, opening: Opening | None = None
) -> Matcher:
    """Return the compiled matcher of a constraint; raises as `PendingMatcher.compile`."""
    return pending_matcher(constraint, vocabulary, opening).compile()
