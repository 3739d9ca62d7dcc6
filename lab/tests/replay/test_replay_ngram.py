"""`ngram` against an independent script, draft for draft: what the replay says of it is right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ngram_reference import ReferenceNgram
from shared_files import SHARED

from akunu_lab.replay.runner import ReplayItem, replay_item
from akunu_lab.replay.tokens import tokenize
from akunu_lab.replay.traces import read_trace
from akunu_py.drafting import NgramDrafter
from akunu_py.gguf import GGUFFile
from akunu_py.tokenizers import from_gguf


class Compared:
    """Drafts as `ngram`, and fails where the script drafts something else."""

    def __init__(self):
        self.drafter, self.reference = NgramDrafter(), ReferenceNgram()
        self.drafts = 0

    def observe(self, tokens):
        self.drafter.observe(tokens)
        self.reference.observe(tokens)

    def propose(self, limit):
        draft = self.drafter.propose(limit)
        assert list(draft.tokens) == self.reference.propose(limit)
        self.drafts += len(draft) > 0
        return draft


def item(prompt, output):
    return ReplayItem("x", "code", "x", 0, tuple(prompt), tuple(output))


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=120),
    st.lists(st.integers(0, 4), min_size=1, max_size=120),
)
def test_on_random_texts(prompt, output):
    replay_item(item(prompt, output), Compared(), 4)


def test_on_a_text_that_repeats_itself():
    compared = Compared()
    text = [7, 8, 9, 7, 8, 5] * 20
    counts = replay_item(item(text, text), compared, 4)
    assert counts.stats.steps_with_draft == compared.drafts == counts.stats.steps > 20


@pytest.fixture(scope="module")
def real_tokenizer():
    path = SHARED / "vocabs" / "ggml-vocab-qwen2.gguf"
    if not path.is_file():
        pytest.skip(f"{path} is absent: recorded vocabularies are not shipped")
    with GGUFFile.open(path) as file:
        return from_gguf(file.metadata)


@pytest.mark.slow
def test_on_recorded_outputs(real_tokenizer):
    """The first 40 of each file."""
    paths = sorted((SHARED / "traces").glob("*.jsonl"))
    if not paths:
        pytest.skip("recorded traces are not shipped")
    for path in paths:
        for recorded in tokenize(read_trace(path)[:40], real_tokenizer):
            compared = Compared()
            counts = replay_item(recorded, compared, 4)
            assert counts.stats.output_tokens == len(recorded.output)
            assert counts.stats.steps_with_draft == compared.drafts
