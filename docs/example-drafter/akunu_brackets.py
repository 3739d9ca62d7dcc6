"""A drafter that closes brackets: `pip install ./example-drafter`, then `--drafter brackets`.

An entry point of the group "akunu.drafters" names `brackets`, a kind of drafter. It makes one for
each reply from a `DrafterSetup`: the vocabulary, how the reply is sampled, the engine's draft
model, the drafter's own options. A drafter has two methods: `observe` is told the prompt and then
what each step committed, `propose` guesses what follows. Nothing it does can change a reply.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from akunu_py.api import Draft, DrafterKind, DrafterSetup, Number, option

CLOSING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Options:
    """Its own options: --bracket-odds, `/set bracket_odds`, `bracket-odds = 0.3` in settings."""

    bracket_odds: float = option(
        0.2, Number(0, 1, "0 to 1"), "Take a bracket to be right with probability P.", metavar="P"
    )


class BracketDrafter:
    """Proposes the brackets that close what is open, the innermost first.

    `texts` has the text of each token id, `closers` the id of each closing bracket.
    """

    def __init__(
        self, texts: Sequence[str], closers: Mapping[str, int], most: int, odds: float
    ) -> None:
        self._texts = texts
        self._closers = closers
        self._most = most
        self._odds = odds
        self._open: list[str] = []

    def observe(self, tokens: Sequence[int]) -> None:
        """Take in committed tokens, in order."""
        for token in tokens:
            for character in self._texts[token] if token < len(self._texts) else "":
                if character in CLOSING:
                    self._open.append(CLOSING[character])
                elif self._open and character == self._open[-1]:
                    self._open.pop()

    def propose(self, limit: int) -> Draft:
        """Guess at most `limit` tokens; an empty draft is fine."""
        wanted = self._open[::-1][: min(limit, self._most)]
        tokens = [self._closers[bracket] for bracket in wanted if bracket in self._closers]
        return Draft.chain(tokens, "brackets", confidence=(self._odds,) * len(tokens))


def make(setup: DrafterSetup) -> BracketDrafter:
    """Make the drafter of one reply."""
    closers = setup.kept.get("closers")
    if not isinstance(closers, dict):
        # Found once for each engine: a vocabulary may have 200,000 tokens.
        texts = setup.token_texts()
        closers = {text: id_ for id_, text in enumerate(texts) if text in CLOSING.values()}
        setup.kept.update(closers=closers, texts=texts)
    odds = setup.options.bracket_odds
    return BracketDrafter(setup.kept["texts"], closers, setup.num_draft_tokens, odds)


brackets = DrafterKind(make, options=Options)
