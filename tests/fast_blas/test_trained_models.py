"""Trained models against llama.cpp: token ids, logits, greedy replies with and without drafts."""

import hashlib

import pytest
from fast_blas import needs_fast_blas
from shared_files import PATHS, REAL, path_of
from trained_references import arrays, check_logits, encoded, never_ending, references

from akunu_py import Engine

pytestmark = needs_fast_blas

MODELS = ("akunu-tiny", "akunu-tiny-draft", pytest.param(REAL, marks=pytest.mark.slow))


def each_prompt(*kinds, real_step=1):
    """Parameters: model, kind of weights, prompt; of the real model each `real_step`-th prompt."""
    cases = []
    for model in PATHS:
        for weights in ("dense", "quantized"):
            if weights == "quantized" and model != "akunu-tiny-draft":
                continue  # MLX's quantized products are slow on the CPU
            chosen = [each for each in references(model) if each.name.endswith(kinds)]
            cases += [
                pytest.param(
                    (model, weights), reference, id=f"{model}, {weights}, {reference.name}",
                    marks=[pytest.mark.slow] if model == REAL else [],
                )
                for reference in chosen[:: real_step if model == REAL else 1]
            ]  # fmt: skip
    return pytest.mark.parametrize(("engine", "reference"), cases, indirect=["engine"])


@pytest.fixture(scope="module")
def engine(request):
    model, weights = request.param
    with Engine.load(path_of(model), weights=weights, compute_type="float32") as engine:
        yield engine


@pytest.mark.parametrize("model", MODELS)
def test_this_is_the_model_that_was_recorded(model):
    assert hashlib.sha256(path_of(model).read_bytes()).hexdigest() == arrays(model)["model"]


@each_prompt("chat", "raw")
def test_token_ids(engine, reference):
    assert encoded(engine.tokenizer, reference.prompt) == reference.ids


# After each token of whole replies; below only the tokens are compared.
@each_prompt("chat", "raw", real_step=3)
def test_logits_and_likeliest_tokens(engine, reference):
    check_logits(engine, reference)


@pytest.mark.fast_every(2)
@each_prompt("chat", real_step=6)
def test_plain_replies_end_where_llama_cpps_do(engine, reference):
    result = engine.generate(reference.ids, max_tokens=len(reference.reply), drafter="none")
    reply = [id_ for id_ in result.token_ids if id_ not in engine.tokenizer.end_ids]
    assert reply == reference.reply[: reference.ends_at]
    assert (result.finish_reason == "length") == (reference.ends_at is None)


@pytest.mark.fast_every(2)
@each_prompt("raw", real_step=3)
def test_drafted_replies(engine, reference):
    options = {"max_tokens": len(reference.reply), "logit_bias": never_ending(engine)}
    result = engine.generate(reference.ids, drafter="auto", draft_budget="always", **options)
    assert list(result.token_ids) == reference.reply
