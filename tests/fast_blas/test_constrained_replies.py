"""Constrained replies of the default model: random schemas, with any drafter, and calls of tools."""

import pytest
from constrained_replies import check
from fast_blas import needs_fast_blas
from shared_files import REAL_MODEL, ROOT

from akunu_py import Engine

pytestmark = [needs_fast_blas, pytest.mark.slow]


@pytest.fixture(scope="module")
def real():
    if not REAL_MODEL.is_file():
        pytest.skip(f"{REAL_MODEL.name} is not in the data folder")
    with Engine.load(REAL_MODEL, reproducible=True) as engine:
        yield engine


@pytest.mark.parametrize("seed", [1000, 1002])
def test_schemas_with_a_real_model(real, seed):
    """Passes are aligned, so that rows have equal bits with any BLAS."""
    check(real, "schemas", [seed], max_tokens=80)


def test_the_agent_of_the_docs(real):
    page = (ROOT / "docs" / "tools.md").read_text()
    source = page.partition("```python\n")[2].partition("```")[0]
    names = {"__name__": "agent"}
    exec(compile(source, "docs/tools.md", "exec"), names)  # noqa: S102 - the page's own example
    said = names["answer"](real, "How is the weather in Rome?", "required", turns=2)
    user, called, *_ = said
    assert user.role == "user"
    assert called.tool_calls
    assert all(call.name in names["FUNCTIONS"] for call in called.tool_calls)
    results = [message for message in said if message.role == "tool"]
    assert len(results) >= len(called.tool_calls)
