"""All earlier occurrences of the last tokens of a growing text, most recent first.

Two chains run through the text: from each position to the latest earlier one with the same token,
and to the latest earlier one with the same two tokens. Taking a token in costs two look-ups; the
occurrences of the text's end are found by following a chain from there.
"""

from collections.abc import Mapping, Sequence

# No vocabulary has 2**24 tokens. If one had, a match could be found where there is none, and the
# target would reject what followed it.
_PAIR_SHIFT = 24


_NEAR = 6  # tokens compared one by one before whole blocks are
_BLOCK = 16


def _matched_to(text: list[int], before: int, position: int, end: int, longest: int) -> int:
    """Return the place before the first token of a match that ends at `position` and at `end`.

    What lies after `before` is known to match; at most `longest` tokens are counted.
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

    Texts that do not belong together are kept apart by separators: negative ids, each used once, so
    that no match can hold one. Position 0 holds one too, and ends every chain.

    Attributes:
        tokens: the text, separators included.
        same_token: position -> latest earlier position with that token; 0 for none.
        same_pair: position -> latest earlier position with that token and the one before it.

    """

    __slots__ = (
        "_base",
        "_last_pair",
        "_last_token",
        "_older_pair",
        "_older_token",
        "same_pair",
        "same_token",
        "tokens",
    )

    def __init__(self, older: "OccurrenceIndex | None" = None) -> None:
        """Start empty, or over a copy of an older index, which may grow on by itself."""
        self._last_token: dict[int, int] = {}
        self._last_pair: dict[int, int] = {}
        if older is None:
            self.tokens: list[int] = [-1]
            self.same_token: list[int] = [0]
            self.same_pair: list[int] = [0]
            self._older_token: Mapping[int, int] = {}
            self._older_pair: Mapping[int, int] = {}
        else:
            self.tokens = older.tokens.copy()
            self.same_token = older.same_token.copy()
            self.same_pair = older.same_pair.copy()
            self._older_token = older._last_token  # noqa: SLF001 - of the same class
            self._older_pair = older._last_pair  # noqa: SLF001
        self._base = len(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def separate(self) -> None:
        """End a text: what comes next matches nothing across this point."""
        # No other separator has this number: the text never gets shorter.
        self.tokens.append(-1 - len(self.tokens))
        self.same_token.append(0)
        self.same_pair.append(0)

    def extend(self, tokens: Sequence[int]) -> None:
        """Take in tokens, none of them negative."""
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
                if found >= base:  # the older index has grown since: not part of this text
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
        """Find where the text's end occurred before, most recent first.

        Those of the last two tokens, or where these are new together, of the last one. Each is
        (position of what followed, number of tokens that match, `longest` at most). The search ends
        after `most` of them, or `further` ones after the last that beat all before it with a match
        of `enough` tokens.
        """
        text = self.tokens
        end = len(text) - 1
        chain, known = self.same_pair, 2
        position = chain[end]
        if not position:
            chain, known = self.same_token, 1
            position = chain[end]
            if not position:
                return []
        # Backwards from the last token not compared yet; a separator ends the walk at the latest.
        nearest = min(longest, known + _NEAR)
        tail = text[max(0, end - nearest + 1) : end - known + 1]
        tail.reverse()
        found: list[tuple[int, int]] = []
        best = enough - 1
        until = most
        while position and len(found) < until:
            before = position - known
            for token in tail:
                if text[before] != token:
                    break
                before -= 1
            else:
                before = _matched_to(text, before, position, end, longest)
            length = position - before
            found.append((position + 1, length))
            if length > best:
                best = length
                until = min(most, len(found) + further)
            position = chain[position]
        return found
