"""What a drafter is told of the target's candidates, and what is true of them."""

from akunu_py.decoding.loop import NUM_CANDIDATES
from akunu_py.protocols import Drafter
from akunu_py.values.types import GenerationConfig

CONFIGS = {
    "greedy": GenerationConfig(),
    "sampled": GenerationConfig(temperature=0.9),
    "penalties": GenerationConfig(repetition_penalty=1.3, presence_penalty=0.4),
}


def best(logits, count):
    """The ids of the largest, the lowest first among equals."""
    return sorted(range(len(logits)), key=lambda token: (-logits[token], token))[:count]


def true_rows(session, context, fed):
    """The candidates after each of `fed`, which follow `context`, from passes of their own."""
    rows = session.logits([*context, *fed])[len(context) :]
    return [(token, best(row, NUM_CANDIDATES)) for token, row in zip(fed, rows, strict=True)]


class Recorder:
    """Keeps what its drafter is told, and checks the order: candidates, then the output."""

    def __init__(self, drafter):
        self.drafter = drafter
        self.propose = drafter.propose
        self.rows = []
        self.passes = []

    def observe_candidates(self, rows):
        assert len(self.passes) == len(self.rows)
        self.rows.append(list(rows))
        Drafter.of(self.drafter).observe_candidates(rows)

    def observe(self, tokens):
        if self.rows:
            self.passes.append(tuple(tokens))
        self.drafter.observe(tokens)
