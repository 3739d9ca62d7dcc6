"""The tokens that a text is made of: their texts, and which of them a client sees."""

from codecs import utf_8_decode
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from akunu_py.protocols import Tokenizer
from akunu_py.server.events import Logprob
from akunu_py.values.reply_deltas import ContentDelta
from akunu_py.values.types import TokenLogprob


class TokenTexts:
    """The texts and bytes of a vocabulary's tokens, read when they are first needed."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.end_ids = tokenizer.end_ids

    def logprob(self, one: TokenLogprob) -> Logprob:
        """Return how likely a token was, with its text and those of the likeliest."""
        top = tuple(Logprob(*self._of(token), value) for token, value in one.top)
        return Logprob(*self._of(one.token), one.logprob, top)

    def prompt(
        self, ids: Sequence[int], scores: Sequence[TokenLogprob], given: str | None
    ) -> list[Logprob]:
        """Return the tokens of a prompt; the first has no score.

        The text that is shown leaves out what the tokenizer put before a `given` text.
        """
        shown = [Logprob(*self._of(ids[0]), None), *map(self.logprob, scores)]
        data = b"".join(one.data for one in shown)
        added = 0
        if given is not None and data.endswith(given.encode()):
            added = len(data) - len(given.encode())
        for place, one in enumerate(shown):
            shown[place] = replace(one, data=one.data[added:])
            added = max(0, added - len(one.data))
        return shown

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, marks included."""
        return b"".join(self._of(token)[1] for token in ids).decode(errors="replace")

    def plain_bytes(self, token: int) -> bytes:
        """Return the bytes of a token; none if it is a control token."""
        return self._bytes[token] if token < len(self._bytes) else b""

    def _of(self, token: int) -> tuple[str, bytes]:
        data = self.plain_bytes(token) or self._control.get(token, "").encode()
        return data.decode(errors="replace"), data

    @cached_property
    def _bytes(self) -> Sequence[bytes]:
        return self.tokenizer.token_bytes()

    @cached_property
    def _control(self) -> Mapping[int, str]:
        return self.tokenizer.control_tokens()


class ShownTokens:
    """Finds the tokens of the text that is shown, in order.

    Parts of a reply's text are shown: not reasoning, calls, markers, some white space, and what
    follows a stop text. A token gets the bytes that it adds to what is shown. Those of a token that
    is shown whole are its own, also if they are a part of a character.

    Args:
        texts: the vocabulary's.
        marks: texts of the control tokens that are part of the reply's text, by id.
        keeps_all: whether tokens that add nothing are kept, without bytes.

    """

    def __init__(self, texts: TokenTexts, marks: Mapping[int, str], *, keeps_all: bool) -> None:
        self._texts = texts
        self._marks = {**marks, **dict.fromkeys(texts.end_ids, "")}
        self._keeps_all = keeps_all
        self._tokens: deque[tuple[TokenLogprob, bytes]] = deque()  # not taken yet
        self._text = ""
        self._place = 0  # in the text, of the first of these tokens
        self._parts: deque[ContentDelta] = deque()  # shown, with tokens that are not taken
        self._end = 0  # of the last part
        self._lead = ""  # what was put in before the next token

    def add(self, tokens: Sequence[TokenLogprob], text: str) -> None:
        """Add the next tokens, and to the reply's text, which may lag behind them."""
        self._text += text
        for one in tokens:
            mark = self._marks.get(one.token)
            data = self._texts.plain_bytes(one.token) if mark is None else mark.encode()
            self._tokens.append((one, data))

    def show(self, part: ContentDelta) -> list[Logprob]:
        """Return the tokens that end with a part of the text, which is shown next."""
        if part.begin < 0:
            self._lead += part.text
            return []
        self._parts.append(part)
        self._end = part.begin + len(part.text)
        return self._take(lambda end: end <= self._end)

    def rest(self, *, ended: bool) -> list[Logprob]:
        """Return the tokens of what was shown that go on behind it; all if the reply `ended`."""
        return self._take(lambda _: ended or bool(self._parts), ended=ended)

    def _take(self, wanted: Callable[[int], bool], *, ended: bool = False) -> list[Logprob]:
        """Return the next tokens as long as those that end at a place are wanted."""
        found: list[Logprob] = []
        while self._tokens:
            count, size = self._next(ended=ended)
            end = self._place + size
            if not count or not wanted(end):
                break
            text = "".join(
                part.text[max(0, self._place - part.begin) : max(0, end - part.begin)]
                for part in self._parts
            )
            if text:
                text, self._lead = self._lead + text, ""
            while self._parts and self._parts[0].begin + len(self._parts[0].text) <= end:
                self._parts.popleft()
            self._place = end
            taken = [self._tokens.popleft() for _ in range(count)]
            data = [own for _, own in taken]
            if b"".join(data).decode(errors="replace") != text:
                data = [*(b"" for _ in data[1:]), text.encode()]
            found += (
                replace(self._texts.logprob(one), data=own)
                for (one, _), own in zip(taken, data, strict=True)
                if own or self._keeps_all
            )
        return found

    def _next(self, *, ended: bool) -> tuple[int, int]:
        """Return how many tokens come next, and how many characters they add; 0 if yet unknown.

        They are one, or those that make up a character.
        """
        data, text = b"", ""
        count = 0
        for _, more in self._tokens:
            data, count = data + more, count + 1
            text, read = utf_8_decode(data, "replace", False)
            if read == len(data):
                break
        else:
            if not ended:
                return 0, 0
        if ended and count == len(self._tokens):
            return count, len(self._text) - self._place
        rest = self._text[self._place : self._place + len(text)]
        # Some tokenizers put a space before a text, and take it away again.
        for made in (text, text.removeprefix(" ")):
            if rest.startswith(made):
                return count, len(made)
            if made.startswith(rest) and len(rest) < len(text):
                return (count, len(rest)) if ended else (0, 0)
        # Other decoders may write another text than the bytes say.
        place = self._text.find(text, self._place)
        return count, place + len(text) - self._place if place >= 0 else 0
