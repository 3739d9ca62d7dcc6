"""An interrupt at any step of Python leaves a session that gives what a fresh one gives.

Mutants, made by hand, that these tests kill: `settled` left as it is while rows are dropped, caches
restored or made anew, or a step committed; marks that outlive the rows they stand for.
"""

import pytest
from family_models import build_family
from fresh_draws import begin, expected, made
from interrupts import GREEDY, PROMPT, interrupted
from tiny_models import begin as begin_reply
from tiny_models import generate

from akunu_py.drafting import PlainDrafter
from akunu_py.models.session import Session
from akunu_py.values.types import Draft


class Conversation:
    """A session, and changes of it that are interrupted."""

    def __init__(self, name):
        name, _, kind = name.partition(": ")
        self._options = {"context": 64, "reproducible": kind == "reproducible"}
        self._model = build_family(name)
        self._session = Session(self._model, **self._options)
        self.rows = self._session._rows

    def found(self, prompt):
        return _reply(self._session, prompt)

    def expected(self, prompt):
        return _reply(Session(self._model, **self._options), prompt)

    def _begin(self, prompt=PROMPT):
        begin_reply(self._session, prompt)

    def commit(self, draft, accepted):
        self._begin()
        self._session.choose(PROMPT[-1], draft)
        return lambda: self._session.commit(accepted)

    def chain(self):
        return self.commit(Draft.chain([1, 2, 3, 4]), (0,))

    def tree(self):
        return self.commit(Draft((1, 2, 3, 4), (-1, -1, 1, 1)), (1, 3))

    def shorter(self):
        self._begin()
        return lambda: self._begin([*PROMPT[:9], 5, 6])

    def again(self):
        """From behind a reply to the end of its prompt."""
        self.steps()()
        return lambda: self._begin([*PROMPT, 5, 6])

    def another(self):
        self._begin()
        return lambda: self._begin([96, *PROMPT])

    def reset(self):
        self._begin()
        return self._session.reset

    def steps(self):
        self._begin()

        def decode():
            (token,) = self._session.choose(PROMPT[-1], Draft.empty())
            self._session.commit(())
            self._session.choose(token, Draft.chain([1, 2]))
            self._session.commit(())

        return decode


def _reply(session, prompt):
    return generate(session, prompt, GREEDY, PlainDrafter(), max_tokens=4)


class Drafting:
    """A draft model, and draws that are interrupted."""

    def __init__(self, name):
        self._model = build_family(name)
        self._drafts = made(self._model, context=60)
        self.rows = self._drafts._rows

    def found(self, prompt):
        begin(self._drafts, prompt, GREEDY)
        return [token.token for token in self._drafts.draw(2)]

    def expected(self, prompt):
        return expected(self._model, prompt, 2, GREEDY)

    def draws(self):
        begin(self._drafts, PROMPT, GREEDY)
        self._drafts.draw(2)
        self._drafts.extend([5, 6])
        # The guess is wrong, so that its row is dropped before the next pass.
        return lambda: self._drafts.draw(2, None, lambda drawn, limit: (1,)[:limit])


FAST = [("llama", "tree"), ("mamba2", "chain")]
SLOW = [
    ("llama: reproducible", "shorter"), ("llama", "chain"), ("llama", "shorter"), ("llama", "another"), ("llama", "reset"), ("llama, sliding", "chain"), ("mamba2", "shorter"),
    ("mamba2", "again"), ("llama: reproducible", "steps"), ("mamba2: reproducible", "again"),
]  # fmt: skip
# A line may be interrupted behind each of its calls, too: one case of each kind of rows.
INSTRUCTIONS = [
    ("llama", "steps"), ("llama, sliding", "shorter"), ("mamba2", "steps"),
    ("mamba2: reproducible", "shorter"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "change"), [*FAST, *SLOW])
def test_an_interrupt_before_any_line(name, change):
    assert interrupted(Conversation(name), change, "line") > 10


@pytest.mark.slow
@pytest.mark.parametrize(("name", "change"), INSTRUCTIONS)
def test_an_interrupt_behind_any_call(name, change):
    assert interrupted(Conversation(name), change, "opcode") > 50


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "mamba2"])
def test_an_interrupt_of_a_draft_model(name):
    assert interrupted(Drafting(name), "draws", "line") > 100
