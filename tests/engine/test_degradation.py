"""Drafting where there is little or nothing to draft with: an error that names it, or plain text.

All through `Engine`. A draft model's shorter context, interrupts and vocabularies of another kind
are in `test_engine_heads.py`. Mutants, made by hand, that these tests kill: drafts without any
bound by what is left of reply and context; trees handed to a model without a try; a draft model
that keeps rows of rejected tokens, or does not go back to before them; no warning of a large one.
"""

import logging
from itertools import cycle

import gguf_files
import numpy as np
import pytest
from gguf_files import write_tiny_llama
from tiny_architectures.builder import build
from whole_replies import PROMPT, details, endless

from akunu_py import ConfigError, ContractError, Engine
from akunu_py.drafting.registry import DrafterKind
from akunu_py.values.types import Draft

DRAFTERS = [
    *(name for name in DrafterKind.names("text", "candidates") if name != "none"),
    *DrafterKind.names("draft model"),
]
REJECTION = {"temperature": 0.9, "seed": 4, "draft_sampling": "rejection"}
MODES = {
    "greedy": {},
    "sampled": {"temperature": 0.9, "seed": 4},
    "rejection": REJECTION,
    "lenient greedy": {"lenience": 0.3},
    "lenient": {"lenience": 0.3, **REJECTION},
}
# Those in which what is drafted cannot change the text.
SAME_TEXT = {"greedy": {}, "sampled": MODES["sampled"], "one-hot": {"draft_sampling": "rejection"}}


def each(modes):
    """Parametrize over modes; those that a verifier of the laboratory decides are marked."""
    own = ("greedy", "sampled")
    return pytest.mark.parametrize(
        "mode", [pytest.param(mode, marks=() if mode in own else pytest.mark.lab) for mode in modes]
    )


@pytest.fixture(scope="module")
def small(tiny_gguf, tiny_draft):
    """The pair with so short a context that any long draft would leave it: 12 tokens of a reply."""
    with Engine.load(tiny_gguf) as engine:
        context = len(engine.tokenizer.encode(PROMPT, parse_special=True)) + 12
    with Engine.load(tiny_gguf, draft_model=tiny_draft, context=context) as engine:
        yield engine


def plug_in(offer, propose):
    """Offer a drafter "mine" that proposes what `propose(length of the text, limit)` returns."""

    class Mine:
        seen = 0

        def observe(self, tokens):
            self.seen += len(tokens)

        def propose(self, limit):
            return propose(self.seen, limit)

    offer(drafters={"mine": lambda setup: Mine()})


def fork(text, size):
    """Return a rule that proposes what follows in a text, and a wrong token beside each."""

    def propose(seen, limit):
        first, second = text[seen], text[min(seen + 1, len(text) - 1)]
        tokens = ((first + 1) % size, first, (second + 1) % size, second)
        return Draft(tokens, (-1, -1, 1, 1), "mine").first(limit)

    return propose


def test_a_vocabulary_that_differs_in_one_token(tiny_gguf, tmp_path, monkeypatch):
    tokens, types, merges = gguf_files.bpe_vocabulary()
    place = tokens.index("<|end|>")
    tokens[place] = "<|fin|>"
    monkeypatch.setattr(gguf_files, "bpe_vocabulary", lambda: (tokens, types, merges))
    draft = write_tiny_llama(tmp_path / "draft.gguf", seed=9, layers=1)
    said = rf"id {place} is '<\|end\|>' for the model and '<\|fin\|>' for the draft model"
    with pytest.raises(ConfigError, match=said):
        Engine.load(tiny_gguf, draft_model=draft)


@pytest.mark.slow
def test_a_draft_model_larger_than_the_model(tiny_gguf, tmp_path, caplog):
    draft = write_tiny_llama(tmp_path / "draft.gguf", tied=False, seed=9, layers=5)
    with caplog.at_level(logging.WARNING), Engine.load(tiny_gguf, draft_model=draft) as engine:
        assert "drafting with it will hardly pay" in caplog.text
        options = endless(engine, max_tokens=20)
        drafted = engine.generate(PROMPT, **options)
        assert drafted.stats.drafted > 0
        plain = engine.generate(PROMPT, **{**options, "drafter": "none"})
        assert drafted.token_ids == plain.token_ids


@pytest.mark.fast_every(2)
@each(MODES)
def test_no_draft_tokens_is_plain_decoding(tiny_pair, mode):
    options = endless(tiny_pair, max_tokens=6, **MODES[mode])
    plain = tiny_pair.generate(PROMPT, drafter="none", **options)
    for place, drafter in enumerate(DRAFTERS, list(MODES).index(mode)):
        options["draft_budget"] = ("auto", "always")[place % 2]
        found = tiny_pair.generate(PROMPT, drafter=drafter, num_draft_tokens=0, **options)
        assert found.token_ids == plain.token_ids, drafter
        assert found.stats.drafted == 0
        assert found.stats.steps == 6


@pytest.mark.fast_every(3)
@pytest.mark.parametrize(
    ("drafter", "mode"),
    [
        pytest.param(drafter, mode, marks=pytest.mark.lab if mode == "one-hot" else ())
        for drafter, mode in zip(DRAFTERS, cycle(("sampled", "one-hot")), strict=False)
    ],
)
def test_more_draft_tokens_than_there_is_room_for(small, drafter, mode):
    """To the last row of the context, and to the last token of the reply."""
    options = endless(small, drafter=drafter, num_draft_tokens=64, **SAME_TEXT[mode])
    filled = small.generate(PROMPT, **options)
    assert filled.num_prompt_tokens + len(filled.token_ids) == small.context
    assert filled.finish_reason == "length"
    plain = small.generate(PROMPT, **{**options, "drafter": "none"})
    assert filled.token_ids == plain.token_ids
    for limit in (1, 3):
        result, steps = details(small, **options, max_tokens=limit)
        assert result.token_ids == plain.token_ids[:limit]
        left = limit
        for step in steps:
            depth = {-1: 0}
            for place, drafted in enumerate(step.drafted):
                depth[place] = 1 + depth[drafted.parent]
            # The pass adds a token of its own.
            assert max(depth.values()) < left
            left -= len(step.accepted) + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "mode"),
    [
        *(("llama", mode) for mode in ("greedy", "sampled")),
        pytest.param("llama", "one-hot", marks=pytest.mark.lab),
        ("gpt2", "sampled"), ("llama4", "greedy"), ("mamba2", "sampled"), ("reproducible", "greedy"),
    ],
)  # fmt: skip
def test_a_tree_for_a_model_that_may_take_none(tmp_path, offer, architecture, mode):
    """Attention in chunks, a recurrent state, passes of one size: chains; learned positions: not."""
    reproducible = architecture == "reproducible"
    path = build("llama" if reproducible else architecture).write(tmp_path / "model.gguf")
    with Engine.load(path, reproducible=reproducible) as engine:
        options = endless(engine, max_tokens=24, **SAME_TEXT[mode])
        plain = engine.generate(PROMPT, drafter="none", **options)
        text = [*engine.tokenizer.encode(PROMPT, parse_special=True), *plain.token_ids]
        plug_in(offer, fork(text, engine.vocabulary_size))
        result, steps = details(engine, drafter="mine", num_draft_tokens=4, **options)
        assert result.token_ids == plain.token_ids
        parents = [[drafted.parent for drafted in step.drafted] for step in steps]
        chains = [parent == list(range(-1, len(parent) - 1)) for parent in parents]
        assert all(chains) == (architecture not in ("llama", "gpt2"))
        assert result.stats.accepted > 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "mode"),
    [
        (architecture, mode)
        for architecture in ("mamba2", "qwen3next", "gemma3")
        for mode in SAME_TEXT
    ],
)
def test_a_draft_model_that_cannot_drop_rows(tiny_gguf, tmp_path, architecture, mode):
    """Recurrent, part recurrent, and with a window: they go back and feed again."""
    path = build(architecture).write(tmp_path / "draft.gguf")
    with Engine.load(tiny_gguf, draft_model=path) as engine:
        options = endless(engine, max_tokens=16, **SAME_TEXT[mode])
        plain = engine.generate(PROMPT, drafter="none", **options)
        for drafter in DrafterKind.names("draft model"):
            found, steps = details(engine, drafter=drafter, **options)
            assert found.token_ids == plain.token_ids
            assert found.stats.drafted > 5
            # So it was asked again after rejections.
            assert sum(step.kind == "recovered" for step in steps) > 2
            if drafter == "draft-model" and mode == "greedy":
                said = {step.position: step.drafted[0].token for step in steps if step.drafted}
        text = [*engine.tokenizer.encode(PROMPT, parse_special=True), *plain.token_ids]
        ends = list(engine.tokenizer.end_ids)
    if mode == "greedy":
        # What it drafts after rejections is what it says of the text alone.
        with Engine.load(path) as alone:
            rows = alone.logits(text)
        rows[:, ends] = -np.inf
        assert said == {at: int(rows[at - 1].argmax()) for at in said}


@each(MODES)
def test_a_drafter_that_has_nothing_to_say(tiny_pair, offer, mode):
    plug_in(offer, lambda _seen, _limit: Draft.empty())
    for budget in ("auto", "always"):
        options = endless(tiny_pair, max_tokens=12, **MODES[mode])
        options["draft_budget"] = budget
        plain = tiny_pair.generate(PROMPT, drafter="none", **options)
        found = tiny_pair.generate(PROMPT, drafter="mine", **options)
        assert found.token_ids == plain.token_ids
        assert found.stats.steps == 12
        assert found.stats.hit_rate is None


@each(MODES)
@pytest.mark.parametrize(
    ("tokens", "said"),
    [(range(5), "5 tokens where 3 were allowed"), ([10**6], r"drafted the token 1000000; ids go")],
)
def test_a_drafter_that_breaks_its_word_ends_one_reply(tiny_pair, offer, tokens, said, mode):
    plug_in(offer, lambda _seen, _limit: Draft.chain(tokens, "mine"))
    options = endless(tiny_pair, max_tokens=12, **MODES[mode])
    plain = tiny_pair.generate(PROMPT, **options, drafter="none")
    with pytest.raises(ContractError, match=said):
        tiny_pair.generate(PROMPT, **options, drafter="mine", num_draft_tokens=3)
    assert tiny_pair.generate(PROMPT, **options, drafter="none").token_ids == plain.token_ids
