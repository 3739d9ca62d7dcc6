"""Reasoning: telling what a model thinks from what it answers, and the switches of thinking.

Templates name their switches as they like, and none says which it has. So each known name is tried
once on a small conversation: a name that changes the prompt is a switch. The engine then passes the
template the values that serve a wish best.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args
from weakref import WeakKeyDictionary

from akunu_py.protocols import TemplateVariable, Tokenizer
from akunu_py.system.errors import AkunuError
from akunu_py.tool_calls.sources import overlap, take_pieces
from akunu_py.values.generation_config import Effort, GenerationConfig
from akunu_py.values.messages import Message
from akunu_py.values.types import TextPiece

if TYPE_CHECKING:
    from akunu_py.constraints import Opening

_PROMPT_END = 16
"""Tokens at the end of a prompt in which a marker may open the reasoning."""

REASONING = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "\u25c1think\u25b7": "\u25c1/think\u25b7",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
    "<longcat_think>": "</longcat_think>",
    "<|think:start|>": "<|think:end|>",
    "<|channel>thought": "<channel|>",
    "<|channel|>analysis<|message|>": "<|end|>",
    "<|think|>": "<|end|>",
}
"""Opening and closing markers of reasoning.

In order: DeepSeek and Qwen, others, EXAONE Deep, Kimi, Seed-OSS, Magistral, Cohere's Command A,
Apertus, LongCat and others (mlx-lm's `tokenizer_utils.py`), Gemma 4, gpt-oss (OpenAI's "Harmony
response format") and Solar Open (llama.cpp's `common/chat.cpp`).
"""

_ANSWERS = {
    "<|channel|>final<|message|>": "<|end|>",
    "<|channel|>commentary<|message|>": "<|end|>",
    "<|content|>": "<|end|>",
}
"""Opening and closing markers of answers, in formats that write a reply as several messages."""

_TOKEN = re.compile("<[^<>]*>|\\[/?[A-Z]+\\]|\u25c1/?think\u25b7")
"""A part of a marker that vocabularies have as one token."""

_MESSAGE_END = "<|end|>"

_CONTROL_TOKENS = (
    *(
        tuple(_TOKEN.findall(opens + closes))
        for opens, closes in REASONING.items()
        if closes != _MESSAGE_END
    ),
    # Of formats that write a reply as several messages: gpt-oss and Solar Open.
    ("<|start|>", "<|channel|>", "<|message|>", "<|end|>"),
    ("<|begin|>", "<|think|>", "<|content|>", "<|end|>"),
)
"""Control tokens around reasoning, by format; a vocabulary uses one if it has all its tokens."""

_FINAL = ("<|channel|>final<|message|>", "<|content|>")
"""Opening markers of answers to the user, as opposed to tools."""

_SPEAKERS = ("<|start|>assistant", "<|begin|>assistant")
_BLOCKS = REASONING | _ANSWERS
_ANSWER_TAGS = {"<response>": "</response>", "<answer>": "</answer>"}
_NEXT_MESSAGE = ("<|start|>", "<|begin|>", "<|channel|>")
_ANALYSIS = "<|channel|>analysis<|message|>"
_CALL = "to=functions."
_CHANNEL = re.compile(r"<\|channel\|>\s*(analysis|commentary|final)?")
_HEADER = re.compile(
    r"<\|channel\|>[^<]*(?:<\|constrain\|>[^<]*)?"
    r"(?:(<\|message\|>)|<\|end\|>|(?=<\|start\|>|<\|channel\|>))"
)
"""A header of gpt-oss with more in it than a channel, or one that no text follows."""
_LONGEST_HEADER = 160
_LEFT_TO_TEMPLATES = "<think>"

_known: "WeakKeyDictionary[Tokenizer, Mapping[int, str]]" = WeakKeyDictionary()


def reasoning_marks(tokenizer: Tokenizer) -> Mapping[int, str]:
    """Return the control tokens around reasoning in a vocabulary, as texts by id.

    These are part of a reply's text, unlike other control tokens. Otherwise nobody could tell
    reasoning from the answer: a reply of gpt-oss would begin with "analysis" and go on with
    "assistantfinal". Markers that a vocabulary has as plain or user-defined tokens are in the text
    anyway.
    """
    marks = _known.get(tokenizer)
    if marks is None:
        begin = len(tokenizer.encode(""))
        marks = {}
        for family in _CONTROL_TOKENS:
            ids = [tokenizer.encode(text, parse_special=True)[begin:] for text in family]
            if all(len(of_text) == 1 for of_text in ids):
                marks |= {
                    of_text[0]: text
                    for of_text, text in zip(ids, family, strict=True)
                    if tokenizer.decode(of_text, with_control=True) == text
                    and not tokenizer.decode(of_text)
                }
        _known[tokenizer] = marks
    return marks


def opening_of(prompt_end: str, tokenizer: Tokenizer, *, space: bool = False) -> "Opening":
    """Return the reasoning that may come before the answer to this prompt.

    Reasoning may, if the prompt opens it or the vocabulary has its markers as tokens. `space` is as
    in `Opening`.
    """
    from akunu_py.constraints import Opening  # for replies in a form

    begin = len(tokenizer.encode(""))

    def known(*markers: str) -> bool:
        parts = [part for marker in markers for part in _TOKEN.findall(marker)]
        return all(len(tokenizer.encode(part, parse_special=True)) == begin + 1 for part in parts)

    marker = opening_marker(prompt_end)
    if marker in _ANSWERS:
        return Opening()
    messages = any(known(opens, closes) for opens, closes in _ANSWERS.items())
    reasoning = tuple(pair for pair in REASONING.items() if known(*pair))
    if not messages:
        inside = "" if marker is None else REASONING[marker]
        return Opening(inside, () if inside else reasoning, space=space and not inside)
    answers = tuple(opens for opens in _FINAL if known(opens, _MESSAGE_END))
    return Opening(
        "" if marker is None else REASONING[marker],
        reasoning,
        answers,
        next((speaker for speaker in _SPEAKERS if known(speaker)), ""),
    )


def end_of_prompt(prompt: Sequence[int], tokenizer: Tokenizer, said: str = "") -> str:
    """Return the end of a reply's prompt, control tokens written out.

    Where the prompt ends with a text that the reply continues, it is what comes before this text.
    """
    size = _PROMPT_END + (len(tokenizer.encode(said)) if said else 0)
    end = tokenizer.decode(prompt[-size:], with_control=True)
    # Templates may drop white space at the beginning of a message.
    return end[: end.rfind(said.lstrip())] if said.strip() in end else end


def opening_marker(prompt_end: str) -> str | None:
    """Return the marker at the end of a prompt that opens the reply's first block, or None."""
    end = prompt_end.rstrip()
    return next((marker for marker in _BLOCKS if end.endswith(marker)), None)


def opening_text(prompt_end: str) -> str:
    """Return the end of a prompt from its opening marker on, or ""."""
    marker = opening_marker(prompt_end)
    return "" if marker is None else prompt_end[prompt_end.rindex(marker) :]


def for_history(reply: str) -> str:
    """Return a reply as later prompts contain it: without its reasoning.

    Reasoning between <think> and </think> stays, since templates look for it in the text; most
    then drop it (Qwen, DeepSeek). Other templates expect reasoning in a field of their own or
    refuse texts with markers (gpt-oss), and most drop earlier reasoning, too.
    """
    return reply if reply.lstrip().startswith(_LEFT_TO_TEMPLATES) else answer_of(reply)


def answer_tags(template: str) -> Mapping[str, str]:
    """Return the tags around answers that a chat template speaks of, opening and closing.

    Granite 3.3 and Hunyuan A13B write them. Other models do if a prompt asks for it, and then
    clients look for them.
    """
    return {
        opens: closes
        for opens, closes in _ANSWER_TAGS.items()
        if opens in template and closes in template
    }


def answer_of(reply: str) -> str:
    """Return a reply without its reasoning."""
    splitter = ReasoningSplitter()
    parts = [*splitter.feed([TextPiece(reply)]), *splitter.finish()]
    return "".join(piece.text for is_reasoning, piece in parts if not is_reasoning)


class ReasoningSplitter:
    """Separates reasoning from the answer, piece by piece.

    Only the beginning of a reply can be reasoning: a marker after the first word is text. In
    formats of several messages each message may be reasoning, and a blank line separates two of the
    same kind. Text that may become a marker is held back. White space next to markers is dropped.
    """

    def __init__(
        self, prompt_end: str = "", said: str = "", tags: Mapping[str, str] | None = None
    ) -> None:
        """Begin inside reasoning if the prompt ends with a marker that opens it.

        `said` is the text behind it that the reply continues, and `tags` are those of answers.
        """
        self._tags = tags or {}
        self._blocks = {**_BLOCKS, **self._tags}  # those that may begin now
        self._in_messages = False  # whether the format is one of several messages
        # Whether the text so far ends within reasoning.
        self.inside = False
        # Marker that ends the open block; "": the reply's end; None: no block is open.
        self._close: str | None = None
        self._at_border = False  # whether white space that comes next is dropped
        self._apart = False  # whether a blank line is due
        self._seen: set[bool] = set()  # what was returned: reasoning, answer
        self._held: list[TextPiece] = []
        if (marker := opening_marker(prompt_end)) is not None:
            self._open(marker)
        if said:
            self.feed([TextPiece(said)])
            self._held.clear()

    @property
    def held(self) -> int:
        """Number of characters that are held back."""
        return len(_text(self._held))

    def feed(self, pieces: Sequence[TextPiece]) -> list[tuple[bool, TextPiece]]:
        """Return the pieces that can be shown now, each with whether it is reasoning."""
        self._held += pieces
        found: list[tuple[bool, TextPiece]] = []
        while self._close is not None or self._begin_block():
            close = self._close or ""
            text = _text(self._held)
            # A message of reasoning may lack its end.
            late = _NEXT_MESSAGE if self.inside and close == _MESSAGE_END else ()
            ends = (close, *late) if close else ()
            found_ends = [(at, one) for one in ends if (at := text.find(one)) >= 0]
            end, mark = min(found_ends, default=(-1, ""))
            held = max((overlap(text, one) for one in ends), default=0)
            size = end if end >= 0 else len(text) - held
            if close:
                # White space waits: it is dropped if the block ends here.
                size = len(text[:size].rstrip())
            found += self._shown(take_pieces(self._held, size))
            if end < 0:
                break
            take_pieces(self._held, end - size + (len(close) if mark == close else 0))
            self._close = ""
            if close == _MESSAGE_END:
                self._close = None
            elif self.inside and self._tags:
                self._close, self._blocks = None, dict(self._tags)
            self.inside, self._at_border = False, True
        return found

    def finish(self) -> list[tuple[bool, TextPiece]]:
        """Return the pieces that were held back until the reply ended."""
        rest, self._held = self._held, []
        if self._close is None:
            text = _text(rest).lstrip()
            if channel := _CHANNEL.match(text):
                if not channel[1] or text[channel.end() :][:1] in {"", "<", " "}:
                    return []  # half a header
                self.inside, self._at_border = channel[1] == "analysis", True
                take_pieces(rest, len(_text(rest)) - len(text) + channel.end())
            elif self._seen:
                return []  # half a marker, between two messages
        if self.inside:
            rest = take_pieces(rest, len(_text(rest).rstrip()))
        return self._shown(rest)

    def _begin_block(self) -> bool:
        """Open the block that begins the held text; return whether its kind is known yet."""
        while True:
            text = _text(self._held)
            start = text.lstrip()
            markers = (*self._blocks, *_SPEAKERS, *((_CALL,) if self._in_messages else ()))
            if any(marker.startswith(start) and marker != start for marker in markers):
                return False
            marker = next((marker for marker in markers if start.startswith(marker)), "")
            channel = None if marker else _CHANNEL.match(start)
            if marker == _CALL or (channel and _CALL in start.partition("<|message|>")[0]):
                self._close = ""
                return True
            if not (marker or channel):
                self._close = _MESSAGE_END if self._in_messages else ""
                return True
            if channel is not None:
                header = _HEADER.match(start)
                if header is None and len(start) < _LONGEST_HEADER:
                    return False
                marker = (header or channel)[0]
            take_pieces(self._held, len(text) - len(start) + len(marker))
            if marker in self._blocks:
                self._open(marker)
                return True
            self._at_border = self._in_messages = True
            if channel is not None and (header is None or header[1]):
                self._open(_ANALYSIS if channel[1] == "analysis" else _FINAL[0])
                return True

    def _open(self, marker: str) -> None:
        self.inside, self._close = marker in REASONING, {**_BLOCKS, **self._tags}[marker]
        self._at_border, self._apart = True, self.inside in self._seen
        self._in_messages |= self._close == _MESSAGE_END

    def _shown(self, pieces: list[TextPiece]) -> list[tuple[bool, TextPiece]]:
        """Return pieces of the open block, without white space right after its marker."""
        if self._at_border:
            text = _text(pieces)
            take_pieces(pieces, len(text) - len(text.lstrip()))
            self._at_border = not pieces
        if not pieces:
            return []
        before = [TextPiece("\n\n")] if self._apart else []
        self._apart = False
        self._seen.add(self.inside)
        return [(self.inside, piece) for piece in (*before, *pieces)]


def _text(pieces: Sequence[TextPiece]) -> str:
    return "".join(piece.text for piece in pieces)


_log = logging.getLogger(__name__)

ThinkingOption = Literal["thinking", "effort"]
"""Options of a reply that only a template can follow."""

_SWITCHES: tuple[tuple[str, TemplateVariable, TemplateVariable], ...] = (
    ("enable_thinking", True, False),
    ("thinking", True, False),
    ("reasoning", True, False),
    ("thinking_mode", "thinking", "chat"),
    ("thinking_option", "on", "off"),
    ("thinking_budget", -1, 0),
)
"""Names of switches, with the values for on and off.

In order: Qwen, GLM and most others; DeepSeek V3.1, Granite and Kimi; Cohere; DeepSeek V4; Ling;
Seed-OSS, where -1 is a budget without limit.
"""

_EFFORT = "reasoning_effort"
"""The variable of gpt-oss, Solar, Mistral and others."""

_WORDS: tuple[Effort, ...] = get_args(Effort)
_COMMON: tuple[Effort, ...] = ("low", "medium", "high")
_NO_WORD = "probe_effort"
_ASK = (Message("user", "a question"),)


class Thinking:
    """Finds a template's switches when they are first asked for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def variables(self, config: GenerationConfig) -> Mapping[str, TemplateVariable]:
        """Return the template's variables for a reply; none where it asks for nothing special.

        An effort asks for reasoning, and "none" for none, unless `thinking` says otherwise. A
        template that lacks a word of effort gets the nearest one.
        """
        thinking, effort = config.thinking, config.effort
        if thinking is None and effort is None:
            return {}
        if self.supported != frozenset(get_args(ThinkingOption)):
            _ = self._noticed
        if thinking is None:
            thinking = effort != "none"
        values: dict[str, TemplateVariable] = {}
        if self._switch is not None:
            name, on, off = self._switch
            values[name] = on if thinking else off
        if self._efforts and not thinking:
            effort = "none"
        if self._efforts and effort is not None:
            values[_EFFORT] = self._nearest(effort)
        return values

    @cached_property
    def supported(self) -> frozenset[ThinkingOption]:
        """The options that change something here."""
        found: set[ThinkingOption] = set()
        if self._switch is not None or "none" in self._efforts:
            found.add("thinking")
        if self._efforts:
            found.add("effort")
        return frozenset(found)

    @cached_property
    def _switch(self) -> tuple[str, TemplateVariable, TemplateVariable] | None:
        for name, on, off in _SWITCHES:
            prompts = self._prompt({name: on}), self._prompt({name: off})
            if None not in prompts and prompts[0] != prompts[1]:
                return name, on, off
        return None

    @cached_property
    def _efforts(self) -> tuple[Effort, ...]:
        """The words of effort that the template knows; none for a template without effort."""
        on = {} if self._switch is None else {self._switch[0]: self._switch[1]}
        given = {word: self._prompt({**on, _EFFORT: word}) for word in (*_WORDS, _NO_WORD)}
        unknown = given.pop(_NO_WORD)
        if len({*given.values()} - {None}) < 2:
            return ()
        # A template that writes any word, as that of gpt-oss does, knows the common ones.
        writes = unknown is not None and _NO_WORD in self._tokenizer.decode(unknown)
        return tuple(
            word
            for word in _WORDS
            if given[word] is not None
            and (word in _COMMON or not (writes or given[word] == unknown))
        )

    def _nearest(self, effort: Effort) -> Effort:
        wanted = _WORDS.index(effort)
        return min(self._efforts, key=lambda word: abs(_WORDS.index(word) - wanted))

    def _prompt(self, variables: Mapping[str, TemplateVariable]) -> tuple[int, ...] | None:
        """Return the prompt of a question, None where the template refuses the variables."""
        try:
            return tuple(self._tokenizer.encode_chat(_ASK, variables=variables))
        except AkunuError:
            return None

    @cached_property
    def _noticed(self) -> bool:
        missing = sorted(frozenset(get_args(ThinkingOption)) - self.supported)
        _log.warning(
            "the model's chat template has no switch for %s; it is ignored", " and ".join(missing)
        )
        return True
