"""Random replies through the engine, several in a row: what is drafted, and how, changes no token.

Engines stay as earlier examples left them: rows held, memory and budgets go on, streams are left
off in the middle. What each reply must be comes from an engine of its own that never drafts.

Mutants, made by hand, that these tests kill: penalties that do not see a row's own path; a rejected
row kept, an accepted one lost; a step in flight kept for the next reply; a prompt's rows, or those of
the draft model, taken to agree one token too far.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from identity import assert_same_tokens
from tiny_architectures.builder import build
from with_counts import WithCounts

from akunu_lab.counts import fit_counts, save_counts
from akunu_py import Engine, GenerationConfig
from akunu_py.drafting import vocabulary_fingerprint
from akunu_py.drafting.registry import DrafterKind

# All of one attention; windows; part recurrent; experts; windows with sinks and experts.
ARCHITECTURES = ["llama", "gemma3", "qwen3next", "qwen3moe", "gpt-oss"]
NAMES = [
    name
    for name in (
        *DrafterKind.names("text", "candidates"),
        *DrafterKind.names("file"),
        *DrafterKind.names("draft model"),
    )
    if name != "none"
]
PROPOSING = ("draft-model", "draft-model-ngram")
OF_TEXT = ("ngram", "ngram-window", "lookup")
WORDS = tuple(range(40, 46))
"""The tokens of prompts, and of most replies: with so few of them text repeats itself."""


def optional(**options):
    """Any of these options, each there or left out."""
    return st.fixed_dictionaries({}, optional=options)


@st.composite
def samplings(draw):
    """How a reply is sampled."""
    options = draw(
        optional(
            top_k=st.sampled_from([1, 3, 40]),
            top_p=st.sampled_from([0.1, 0.9]),
            min_p=st.sampled_from([0.05, 1.0]),
            repetition_penalty=st.sampled_from([0.8, 1.3]),
            presence_penalty=st.sampled_from([-0.5, 0.7]),
            frequency_penalty=st.sampled_from([-0.2, 0.4]),
            penalty_window=st.sampled_from([1, 5, 64]),
            stop=st.sampled_from([("*",), (",-", "\n")]),
        )
    )
    options["temperature"] = draw(st.sampled_from([0.0, 0.5, 1.0, 3.0]))
    options["seed"] = draw(st.sampled_from([0, 7, 2**64 - 1]))
    options["max_tokens"] = draw(st.sampled_from([1, 2, 9, 24]))
    if draw(st.booleans()):
        options["logit_bias"] = dict.fromkeys(WORDS, 1e4)
    return options


@st.composite
def draftings(draw):
    """What drafts, and how; at temperature 0 by rejection, too."""
    name = draw(st.sampled_from(NAMES))
    options = draw(optional(num_draft_tokens=st.sampled_from([1, 2, 5, 16, 64])))
    if name in PROPOSING:
        options |= draw(optional(num_proposals=st.integers(2, 4)))
    if name in OF_TEXT:
        options |= draw(optional(ngram_order=st.integers(3, 6), ngram_min_match=st.integers(1, 2)))
    if DrafterKind.named(name, ["draft_length"]).has("draft_length"):
        options |= draw(optional(draft_temperature=st.sampled_from([0.0, 0.6, 2.0])))
        options |= draw(
            st.sampled_from([
                {}, {"draft_length": "fixed"}, {"draft_length": "entropy"},
                {"draft_length": "entropy", "min_draft_tokens": 0, "draft_length_beta": 0.8},
                {"draft_length": "lower-bound"},
                {"draft_length": "lower-bound", "draft_length_bound": 0.05},
            ])
        )  # fmt: skip
    options["draft_budget"] = draw(st.sampled_from(["always", "always", "auto"]))
    return {"drafter": name, **options}


@st.composite
def turns(draw):
    """A reply: how it is sampled, what drafts, and what is done before and after it."""
    sampling, drafting = draw(samplings()), draw(draftings())
    if sampling["temperature"] == 0 and draw(st.booleans()):
        drafting["draft_sampling"] = "rejection"
    left_off = draw(st.one_of(st.none(), st.integers(0, 3)))
    goes_on = draw(st.sampled_from(["on", "on", "back", "anew"]))
    more = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12))
    return sampling, drafting, left_off, goes_on, more


def perturbed(architecture, path):
    """The architecture's model with noise on its weights: often of one mind with it."""
    model, random = build(architecture), np.random.default_rng(5)
    for name, values in model.tensors.items():
        noise = 0.03 * random.standard_normal(values.shape)
        model.tensors[name] = (values * (1 + noise)).astype(np.float32)
    return model.write(path)


@pytest.fixture(scope="module")
def engines(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    path = build(request.param).write(folder / "model.gguf")
    draft = perturbed(request.param, folder / "draft.gguf")
    with Engine.load(path) as plain:
        counts = fit_counts([[*WORDS, *WORDS[::-1]] * 3], plain.vocabulary_size)
        fingerprint = vocabulary_fingerprint(plain.tokenizer.token_texts())
        save_counts(counts, folder / "words.counts", fingerprint)
        with Engine.load(path, draft_model=draft) as drafting:
            yield plain, WithCounts(drafting, folder / "words.counts")


def leave_off(engine, prompt, options, count):
    """Begin a reply and leave it after some steps, in one way or another."""
    stream = engine.stream(prompt, **options)
    for _ in range(count):
        if next(stream, None) is None:
            return
    stream.cancel() if count % 2 else stream.close()


@pytest.mark.slow
@pytest.mark.parametrize("engines", ARCHITECTURES, indirect=True)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conversation=st.lists(turns(), min_size=1, max_size=4), first=st.integers(1, 20))
def test_drafts_change_no_token(engines, conversation, first):
    plain, drafting = engines
    prompt = (list(WORDS) * 4)[:first]
    for sampling, options, left_off, goes_on, more in conversation:
        expected = plain.generate(prompt, drafter="none", **sampling)
        if left_off is not None:
            leave_off(drafting, prompt, {**sampling, **options}, left_off)
        found = drafting.generate(prompt, **sampling, **options)
        config = GenerationConfig(**sampling)
        assert_same_tokens(
            found.token_ids, expected.token_ids, logits=plain.logits, prompt=prompt, config=config,
            seed=sampling["seed"], about=f"{sampling} {options}",
        )  # fmt: skip
        assert (found.text, found.finish_reason) == (expected.text, expected.finish_reason)
        if goes_on == "on":
            prompt = [*prompt, *expected.token_ids, *more][-200:]
        else:
            prompt = [*prompt[: len(prompt) // 2], *more] if goes_on == "back" else more
