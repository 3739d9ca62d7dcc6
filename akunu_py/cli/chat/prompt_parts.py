"""Which part of a conversation each token of its prompt is from, in a user's words."""

import bisect
from collections.abc import Iterator, Sequence

from akunu_py.cli.chat.attachments import find_attachments
from akunu_py.protocols import Tokenizer
from akunu_py.values.messages import Message

THIS_CHAT = "this chat"


class PromptParts:
    """Names parts of one prompt: files by their names, all else is this chat.

    The prompt is read when the first place is asked for: that takes some milliseconds.
    """

    def __init__(
        self, prompt: Sequence[int], messages: Sequence[Message], tokenizer: Tokenizer
    ) -> None:
        self._prompt = prompt
        self._messages = messages
        self._tokenizer = tokenizer
        self._ends: list[int] = []  # of each token in the text
        self._borders: list[int] = []  # where a part begins
        self._names: list[str] = []

    def name(self, place: int) -> str:
        """Return the name of the part that a token of the prompt is in."""
        if not self._ends:
            self._read()
        if not 0 <= place < len(self._ends):
            return THIS_CHAT
        part = bisect.bisect_right(self._borders, max(0, self._ends[place] - 1)) - 1
        return self._names[part]

    def _read(self) -> None:
        detokenizer = self._tokenizer.detokenizer()
        pieces = []
        size = 0
        for token in self._prompt:
            pieces.append(detokenizer.feed((token,)))
            size += len(pieces[-1])
            self._ends.append(size)
        text = "".join(pieces)
        self._begin(0, THIS_CHAT)
        place = 0
        for message in self._messages:
            # Templates take the blanks around a message away.
            said = message.text.strip()
            begin = text.find(said, place)
            if begin < 0 or not said:
                continue
            for offset, name in _parts(message.role, said):
                self._begin(begin + offset, name)
            place = begin + len(said)
            self._begin(place, THIS_CHAT)

    def _begin(self, place: int, name: str) -> None:
        self._borders.append(place)
        self._names.append(name)


def _parts(role: str, said: str) -> Iterator[tuple[int, str]]:
    """Yield where files begin and end in what a user said, in order, with the names of parts."""
    for begin, end, name in find_attachments(said) if role == "user" else ():
        yield begin, name
        yield end, THIS_CHAT
