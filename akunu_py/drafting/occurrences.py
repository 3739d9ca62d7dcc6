"""All earlier occurrences of the last tokens of a growing text, most recent first.

Two chains link the positions of the text: each position points to the latest earlier one with the
same token, and to the latest earlier one with the same two tokens. Adding a token takes two
look-ups. Occurrences of the end of the text are found by following a chain from there.
"""

from collections.abc import Mapping, Sequence

# No vocabulary has 2**24 tokens. If one had, a false match would be possible, and the target would
# reject its draft.
_PAIR_SHIFT = 24


_NEAR = 6  # tokens that are compared one by one before whole blocks
_BLOCK = 16


def _match_start(text: list[int], before: int, position: int, end: int, longest: int) -> int:
    """Return the place before the first token of a match that ends at `position` and at `end`.

    The tokens after `before` are known to match. A match is at most `longest` tokens long.
    """
    away = end - position
    last = max(0, position - longest)
    while before - _BLOCK >= last:
        start, other = before - _BLOCK + 1, before + away + 1
        if text[start : before + 1] != text[other - _BLOCK : other]:
            break
        before -= _BLOCK
    while before > last and text[before] == text[before + away]:
        before -= 1
    return before


class OccurrenceIndex:
    """The text and its chains.

    An index can begin where an older one ends. It then continues in the older one's lists instead
    of copies, and takes its tokens out again with `give_back`. If the older one grows in the
    meantime, or another index begins there, that costs one copy.

    Unrelated texts are separated by negative ids. Each separator is used once, so no match can
    contain one. Position 0 also holds a separator, and ends every chain.
    """

    __slots__ = (
        "_base",
        "_borrower",
        "_last_pair",
        "_last_token",
        "_lender",
        "_older_pair",
        "_older_token",
        "same_pair",
        "same_token",
        "tokens",
    )

    def __init__(self, older: "OccurrenceIndex | None" = None) -> None:
        """Start empty, or as an extension of an older index, which may grow independently."""
        # The text, including separators; behind the end, that of an index that began here.
        self.tokens: list[int] = [-1]
        # Position -> latest earlier position with the same token; 0 for none.
        self.same_token: list[int] = [0]
        # Position -> latest earlier position with the same token and predecessor.
        self.same_pair: list[int] = [0]
        self._last_token: dict[int, int] = {}
        self._last_pair: dict[int, int] = {}
        self._older_token: Mapping[int, int] = {}
        self._older_pair: Mapping[int, int] = {}
        self._borrower: OccurrenceIndex | None = None
        self._lender = older
        if older is not None:
            older._keep_apart()  # noqa: SLF001 - of the same class
            older._borrower = self  # noqa: SLF001
            self.tokens, self.same_token = older.tokens, older.same_token
            self.same_pair = older.same_pair
            self._older_token, self._older_pair = older._last_token, older._last_pair  # noqa: SLF001
        self._base = len(self.tokens)

    def __len__(self) -> int:
        borrower = self._borrower
        return len(self.tokens) if borrower is None else borrower._base  # noqa: SLF001

    def give_back(self) -> None:
        """Leave the older index's lists as they were, and become empty.

        An index that stands alone, or gave back already, stays as it is.
        """
        lender = self._lender
        if lender is None:
            return
        if lender._borrower is self:  # noqa: SLF001
            lender._borrower = None  # noqa: SLF001
            for part in (self.tokens, self.same_token, self.same_pair):
                del part[self._base :]
        self.tokens, self.same_token, self.same_pair = [-1], [0], [0]
        self._last_token, self._last_pair = {}, {}
        self._older_token, self._older_pair = {}, {}
        self._lender = None
        self._base = 1

    def _keep_apart(self) -> None:
        """Go on in lists of its own; an index that began here keeps the shared ones."""
        if self._borrower is not None:
            end = len(self)
            self._borrower = None
            self.tokens = self.tokens[:end]
            self.same_token, self.same_pair = self.same_token[:end], self.same_pair[:end]

    def separate(self) -> None:
        """End a text: no match goes across this point."""
        self._keep_apart()
        # The number is unique, because the text never gets shorter.
        self.tokens.append(-1 - len(self.tokens))
        self.same_token.append(0)
        self.same_pair.append(0)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens, none of them negative."""
        self._keep_apart()
        text, same_token, same_pair = self.tokens, self.same_token, self.same_pair
        last_token, last_pair = self._last_token, self._last_pair
        older_token, older_pair = self._older_token, self._older_pair
        base = self._base
        position = len(text)
        high = text[-1] << _PAIR_SHIFT
        text += tokens
        for token in tokens:
            pair = high ^ token
            found = last_token.get(token)
            if found is None:
                found = older_token.get(token, 0)
                if found >= base:  # a later part of the older index, not of this text
                    found = 0
            same_token.append(found)
            found = last_pair.get(pair)
            if found is None:
                found = older_pair.get(pair, 0)
                if found >= base:
                    found = 0
            same_pair.append(found)
            last_token[token] = last_pair[pair] = position
            high = token << _PAIR_SHIFT
            position += 1

    def occurrences(
        self, most: int, longest: int, *, enough: int, further: int
    ) -> list[tuple[int, int]]:
        """Find earlier occurrences of the text's end, most recent first.

        These are occurrences of the last two tokens, or of the last one if the pair is new. If the
        last token is new, too, they are occurrences of the two before it, with any one token after
        them. Each is (number of matching tokens, 0 to `longest`; position after it). The search
        ends after `most` occurrences of two tokens or half as many others, or `further` ones after
        the last that was the longest so far and had at least `enough` matching tokens.
        """
        text = self.tokens
        end = len(text) - 1
        found: list[tuple[int, int]] = []
        position = self.same_pair[end]
        if not position:
            # The pair is new, so that no match has more than one token.
            chain = self.same_token
            position = chain[end]
            fewer = (most + 1) // 2
            until = fewer if enough > 1 else min(fewer, 1 + further)
            while position and len(found) < until:
                found.append((1, position + 1))
                position = chain[position]
            if not found and text[end] >= 0:
                # The last token is new: skip it.
                chain = self.same_pair
                position = chain[end - 1]
                while position and len(found) < fewer:
                    found.append((0, position + 2))
                    position = chain[position]
            return found
        chain = self.same_pair
        # Backwards from the last token not compared yet, at most to a separator.
        nearest = min(longest, 2 + _NEAR)
        tail = text[max(0, end - nearest + 1) : end - 1]
        tail.reverse()
        best = enough - 1
        until = most
        while position and len(found) < until:
            before = position - 2
            for token in tail:
                if text[before] != token:
                    break
                before -= 1
            else:
                before = _match_start(text, before, position, end, longest)
            length = position - before
            found.append((length, position + 1))
            if length > best:
                best = length
                until = min(most, len(found) + further)
            position = chain[position]
        return found
