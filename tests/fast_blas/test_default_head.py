"""The default model with the head that ships for it."""

import pytest
from fast_blas import needs_fast_blas
from shared_files import REAL_MODEL

from akunu_py.engine.engine import Engine


@needs_fast_blas
@pytest.mark.slow
def test_the_default_model_drafts_with_its_head():
    if not REAL_MODEL.is_file():
        pytest.skip(f"{REAL_MODEL.name} is not in the data folder")
    messages = [{"role": "user", "content": "Explain in a few sentences how tides come about."}]
    options = {"draft_budget": "always", "temperature": 0.0, "max_tokens": 32}
    with Engine.load(REAL_MODEL, heads="own", reproducible=True) as engine:
        plain = engine.chat(messages, drafter="none", **options)
        drafted = engine.chat(messages, drafter="mtp", num_draft_tokens=2, **options)
    assert drafted.token_ids == plain.token_ids
    # 40 % of first tokens are accepted in replies like this one.
    assert drafted.stats.accepted > 0.15 * drafted.stats.steps
