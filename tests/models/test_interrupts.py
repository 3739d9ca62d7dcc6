"""An interrupt at any step of Python leaves a session that gives what a fresh one gives.

Mutants, made by hand, that these tests kill: `settled` left as it is while rows are dropped, caches
restored or made anew, or a step committed; marks that outlive the rows they stand for.
"""

import functools
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from family_models import build_family
from fresh_draws import begin, expected, made
from mlx.utils import tree_flatten
from tiny_models import generate, prompt_of

from akunu_py import models
from akunu_py.drafting import PlainDrafter
from akunu_py.lab.beam.rows import BeamRows
from akunu_py.models.session import Session
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.types import Draft, GenerationConfig

PROMPT = prompt_of(20)
GREEDY = GenerationConfig()

ROOM = Path(models.__file__).parent
FILES = {
    str(ROOM / "session.py"),
    str(ROOM / "aligned_rows.py"),
    str(ROOM / "beam_rows.py"),
    str(ROOM / "token_model.py"),
    str(ROOM / "cached_rows.py"),
    str(ROOM / "tree" / "compaction.py"),
    *map(str, (ROOM / "rollback").glob("*.py")),
}
"""Where interrupts come: what moves rows and tokens."""


class Interrupt:
    """Raises KeyboardInterrupt before an instruction, or a line, of these files; counted from 0."""

    def __init__(self, event, number):
        self._event = event
        self._left = number
        self.raised = False

    def _trace(self, frame, event, _):
        if frame.f_code.co_filename not in FILES:
            return None
        frame.f_trace_opcodes = self._event == "opcode"
        if event == self._event and not self.raised:
            if self._left == 0:
                self.raised = True
                raise KeyboardInterrupt
            self._left -= 1
        return self._trace

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, kind, error, traceback):
        sys.settrace(self._before)
        return kind is KeyboardInterrupt


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
        size = self._session.vocabulary_size
        sampler = Sampler(TransformChain.from_config(GREEDY, size), 7, size)
        self._session.begin(prompt, sampler, 20)

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


class Searching:
    """Rows for a beam search, and calls that are interrupted."""

    def __init__(self, name):
        self._model = build_family(name)
        self._made()

    def _made(self):
        self._beams = BeamRows(self._model, PROMPT, vocabulary_size=97, context=60)
        self.rows = self._beams._held

    def found(self, _):
        return int(self._beams.log_probabilities([(4, 1, 2)])[0].argmax())

    def expected(self, _):
        return expected(self._model, [*PROMPT, 4, 1, 2], 1, GREEDY)[0]

    def asks(self):
        self._made()
        self._beams.log_probabilities([(4,), (5,), (6,)])
        return lambda: self._beams.log_probabilities([(5, 1), (4, 1)])


CASES = [
    ("llama", "chain"), ("llama", "tree"), ("llama", "shorter"), ("llama", "another"),
    ("llama", "reset"), ("llama", "steps"), ("llama, sliding", "chain"),
    ("llama, sliding", "shorter"), ("mamba2", "chain"), ("mamba2", "shorter"), ("mamba2", "again"),
    ("mamba2", "steps"), ("llama: reproducible", "steps"), ("llama: reproducible", "shorter"),
    ("mamba2: reproducible", "again"), ("mamba2: reproducible", "shorter"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("llama", "tree"),
        ("llama", "shorter"),
        ("llama", "another"),
        ("mamba2", "chain"),
        ("mamba2: reproducible", "again"),
    ],
)
def test_an_interrupt_before_any_line(name, change):
    assert interrupted(Conversation(name), change, "line") > 10


@pytest.mark.slow
@pytest.mark.parametrize(("name", "change"), CASES)
def test_an_interrupt_before_any_instruction(name, change):
    assert interrupted(Conversation(name), change, "opcode") > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "mamba2"])
def test_an_interrupt_of_a_draft_model(name):
    assert interrupted(Drafting(name), "draws", "line") > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "mamba2"])
def test_an_interrupt_of_a_beam_search(name):
    assert interrupted(Searching(name), "asks", "line") > 50


def interrupted(subject, change, event):
    """Interrupt a change wherever that is possible; return at how many places."""
    stream = mx.default_stream(mx.default_device())
    states = set()
    expected = functools.cache(lambda prompt: subject.expected(list(prompt)))
    number = 0

    def interrupt():
        call = getattr(subject, change)()
        with Interrupt(event, number) as found:
            call()
        # The interpreter interrupts no `with` between its two halves, and a trace does.
        mx.set_default_stream(stream)
        return found.raised

    while True:
        raised = interrupt()
        if (state := described(subject.rows)) not in states:
            states.add(state)
            # What goes on from the rows that are said to be there, and what has to go back.
            for prompt in ([*subject.rows.tokens, 7, 8], [*PROMPT[:9], 5, 6, 7]):
                found = subject.found(prompt)
                assert found == expected(tuple(prompt)), f"interrupted at {number}: {state}"
                interrupt()
        if not raised:
            return number
        number += 1


def described(rows):
    marks = sorted((held, name) for name, (held, _) in rows._marks.items())
    # A place beyond the text would be gone back to once another text is that long.
    assert not rows.settled or not marks or marks[-1][0] <= len(rows.tokens)
    return repr((rows.settled, rows.tokens, [_contents(cache) for cache in rows.caches], marks))


def _contents(cache):
    if hasattr(cache, "offset"):
        return cache.offset
    arrays = [value for _, value in tree_flatten(cache.state) if isinstance(value, mx.array)]
    return [array.sum().item() for array in arrays]
