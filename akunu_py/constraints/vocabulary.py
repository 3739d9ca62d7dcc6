"""A model's vocabulary in llguidance's form."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from akunu_py.constraints.compile_child import LIMITS
from akunu_py.protocols import Tokenizer
from akunu_py.system.errors import ConfigError

SPECIAL = b"\xff"
"""llguidance's mark before the name of a token that is not text. No UTF-8 text has this byte."""

_CHARACTER = r'[^"\\\x00-\x1F\x7F]'
_SLICES = (
    r"[\x20\x0A\x0D\x09]+",
    *(f"{_CHARACTER}{{1,{most}}}" for most in (5, 10, 20, 30)),
    f"{_CHARACTER}+",
)
"""Sets of tokens whose masks llguidance prepares: a set that may follow as a whole is not walked.

They are its own (`LLTokenizer.general_slices`) and two more lengths for texts that are about to
reach their `maxLength`, for which masks took longest.
"""

_KEPT = 4
"""Compiled grammars that are kept: agents send the same tools each turn, and few take turns."""

_BEFORE = ("\x02", "\n", ".")
"""Texts that hardly any token joins with what follows them."""


class MatcherVocabulary:
    """A vocabulary for matchers; making one takes up to a second, so an engine makes one.

    Control tokens are not text. A grammar calls them by their name, such as <|tool_call|>, or by
    their id, as in <[151657]>.

    Args:
        tokenizer: the model's tokenizer.
        num_logits: number of the model's logits; ids without a token are never allowed.

    Raises ConfigError for a vocabulary without an end token.

    """

    def __init__(self, tokenizer: Tokenizer, num_logits: int) -> None:
        self.size = num_logits
        self.end_ids = frozenset(id_ for id_ in tokenizer.end_ids if id_ < num_logits)
        if not self.end_ids:
            raise ConfigError(
                "the model's vocabulary has no token that ends a reply, so a reply cannot be "
                "constrained; use another model"
            )
        # The token of the byte 0xFF would count as special; no text has it.
        tokens = [b"" if token.startswith(SPECIAL) else token for token in tokenizer.token_bytes()][
            :num_logits
        ]
        self.control_ids: dict[str, int] = {}
        for id_, text in tokenizer.control_tokens().items():
            if id_ < len(tokens):
                tokens[id_] = SPECIAL + text.encode()
                self.control_ids[text] = id_
        tokens += [b""] * (num_logits - len(tokens))
        # As llguidance has them.
        self.tokens: Sequence[bytes] = tokens
        encode = _Continuation(tokenizer)
        self.drops_space = encode.drops_space
        self.library = LLTokenizer(
            _Given(tokens, min(self.end_ids), encode),  # type: ignore[arg-type]
            n_vocab=num_logits,
            eos_token=sorted(self.end_ids),
            slices=list(_SLICES),
        )
        self._compiled = lru_cache(maxsize=_KEPT)(
            partial(LLMatcher, self.library, log_level=0, limits=LIMITS)
        )

    def matcher(self, grammar: str) -> LLMatcher:
        """Return llguidance's matcher of a grammar, in JSON, at its beginning.

        What is wrong with the grammar is an error of the matcher.
        """
        return self._compiled(grammar).deep_copy()


class _Continuation:
    """Text to ids as within a longer text, without begin token or a space in front."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._encode = tokenizer.encode
        spelled = {text: tokenizer.encode(text) for text in _BEFORE}
        self._before = {
            text: ids for text, ids in spelled.items() if tokenizer.decode(ids) == text
        } or {"": tokenizer.encode("")}
        spaced = self(" a")
        detokenizer = tokenizer.detokenizer()
        shown = detokenizer.feed(spaced) + detokenizer.finish()
        # Whether decoding drops a space at the beginning of a reply.
        self.drops_space = bool(spaced) and not shown.startswith(" ")

    def __call__(self, text: str) -> list[int]:
        for before, own in self._before.items():
            ids = self._encode(before + text)
            # A token that joins the two texts is not how `text` begins elsewhere.
            if ids[: len(own)] == own:
                return ids[len(own) :]
        return []


class _Given:
    """What llguidance asks a tokenizer for."""

    is_tokenizer_wrapper = True
    bos_token_id = None
    special_token_ids: Sequence[int] = ()

    def __init__(self, tokens: Sequence[bytes], end_id: int, encode: _Continuation) -> None:
        self.tokens = tokens
        self.eos_token_id = end_id
        self._encode = encode

    def __call__(self, text: Any) -> list[int]:
        return self._encode(text if isinstance(text, str) else bytes(text).decode())
