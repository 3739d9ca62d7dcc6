"""Token ids of a text that comes back: those that it was made of, not those it is cut into anew.

A model writes its replies in ids that no tokenizer would choose for the same text. When a client
sends a reply back as text, its new ids differ from those in the cache, and all rows from there on
would be lost. So equal text is given its earlier ids.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import islice

from akunu_py.protocols import Tokenizer
from akunu_py.server.token_trie import common_length

_TRIED = 8
"""Earlier texts that are compared, the most similar first."""

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class Respelling:
    """Finds earlier ids for the beginning of a prompt.

    Texts are compared as the vocabulary writes them. Control tokens and byte tokens equal nothing
    but themselves, so that a text which spells out a control token never becomes one.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._written = tokenizer.token_texts()
        self._texts: dict[int, str] = {}

    def longest(self, prompt: Sequence[int], earlier: Iterable[Sequence[int]]) -> tuple[int, ...]:
        """Return the prompt in ids of which as many as possible begin an earlier sequence."""
        best, most = tuple(prompt), 0
        for tokens in islice(earlier, _TRIED):
            mine, theirs = self._equal_text(prompt, tokens)
            if theirs > most:
                best, most = (*tokens[:theirs], *prompt[mine:]), theirs
        return best

    def _equal_text(self, prompt: Sequence[int], earlier: Sequence[int]) -> tuple[int, int]:
        """Return how many ids of both write the longest beginning that both texts share."""
        mine = theirs = common_length(prompt, earlier)
        found = (mine, theirs)
        while mine < len(prompt) and theirs < len(earlier):
            if prompt[mine] == earlier[theirs]:
                mine, theirs = mine + 1, theirs + 1
                found = (mine, theirs)
                continue
            # What one text has more than the other, until both end at the same place.
            ahead = behind = ""
            while not (found[0] < mine and ahead == behind):
                if not ahead:
                    ahead, mine = self._text(prompt, mine), mine + 1
                if not behind:
                    behind, theirs = self._text(earlier, theirs), theirs + 1
                same = min(len(ahead), len(behind))
                if not same or ahead[:same] != behind[:same]:
                    return found
                ahead, behind = ahead[same:], behind[same:]
            found = (mine, theirs)
        return found

    def _text(self, tokens: Sequence[int], place: int) -> str:
        """Return the text of an id; "" behind the end, or for an id that is not plain text."""
        if place >= len(tokens):
            return ""
        token = tokens[place]
        text = self._texts.get(token)
        if text is None:
            text = self._written[token] if token < len(self._written) else ""
            if _BYTE.fullmatch(text) or not self._tokenizer.decode((token,)):
                text = ""
            self._texts[token] = text
        return text
