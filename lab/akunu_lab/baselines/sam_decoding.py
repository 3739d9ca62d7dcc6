"""SAM decoding: copies the text after the longest suffix that occurred before.

Hu et al., "SAM Decoding" (2024), arXiv:2411.10666, with the dynamic suffix automaton only: the
state of the longest suffix that occurred earlier, its first occurrence, and a draft of
1 + 4 * match tokens, at most 40. The static automaton of a corpus is left out.
"""

from collections.abc import Sequence

from akunu_lab.replay.baseline import Baseline

_MOST = 40
_PER_MATCHED = 4


class SamDecoding(Baseline):
    """States as parallel lists: transitions, suffix link, longest string, first end.

    The automaton is the one of Blumer et al. (1985), built token by token. The suffix link of the
    whole text's state leads to the longest suffix that occurred before, without a second walk.
    """

    name = "sam"
    default_limit = _MOST

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start a text with an empty automaton."""
        self._tokens: list[int] = []
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._first_end = [-1]
        self._whole = 0

    def observe(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._extend(token)

    def _add(self, transitions: dict[int, int], link: int, length: int, first_end: int) -> int:
        self._next.append(transitions)
        self._link.append(link)
        self._length.append(length)
        self._first_end.append(first_end)
        return len(self._next) - 1

    def _extend(self, token: int) -> None:
        transitions, link, length = self._next, self._link, self._length
        state = self._whole
        self._tokens.append(token)
        new = self._add({}, 0, length[state] + 1, len(self._tokens))
        while state != -1 and token not in transitions[state]:
            transitions[state][token] = new
            state = link[state]
        if state != -1:
            old = transitions[state][token]
            if length[old] == length[state] + 1:
                link[new] = old
            else:
                clone = self._add(
                    dict(transitions[old]), link[old], length[state] + 1, self._first_end[old]
                )
                while state != -1 and transitions[state].get(token) == old:
                    transitions[state][token] = clone
                    state = link[state]
                link[old] = link[new] = clone
        self._whole = new

    def draft(self, limit: int) -> Sequence[int]:
        """Copy the text after the first occurrence of the longest suffix that occurred before."""
        state = self._link[self._whole]
        if state <= 0:
            return ()
        size = min(limit, _MOST, 1 + _PER_MATCHED * self._length[state])
        end = self._first_end[state]
        return self._tokens[end : end + size]
