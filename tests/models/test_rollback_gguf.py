"""Every architecture of GGUF, with akunu's own model classes among them, with adversarial drafts."""

import pytest
from engine_inside import session_of
from tiny_architectures.builder import BUILDERS, build
from tiny_models import adversary, generate, prompt_of

from akunu_py import Engine
from akunu_py.drafting import PlainDrafter
from akunu_py.values.types import GenerationConfig

# Own classes, with sliding windows or states among them.
SUBSET = ["deepseek2", "falcon-h1", "gemma2"]
# As deep as the real models, by whose depth they are known; caches as those of their smaller ones.
DEEP = {"command-r-plus", "deepseek2-lite", "gemma2-27b", "gemma3-27b"}


def check(name, folder):
    """Every other architecture greedily with a long prompt, the others sampled with a short one."""
    path = build(name).write(folder / "model.gguf")
    temperature, size = ((0.0, 30), (0.9, 5))[sorted(BUILDERS).index(name) % 2]
    with Engine.load(path, weights="dense", compute_type="float32") as engine:
        session, count = session_of(engine), 40
        config, prompt = GenerationConfig(temperature=temperature), prompt_of(size)
        plain = generate(session, prompt, config, PlainDrafter(), max_tokens=count)
        session.reset()
        drafter = adversary("half", prompt + plain, size)
        assert generate(session, prompt, config, drafter, max_tokens=count) == plain
        assert session.rows.rollback.supported


@pytest.mark.parametrize("name", sorted(set(SUBSET) & set(BUILDERS)))
def test_no_draft_changes_a_token(name, tmp_path):
    check(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(BUILDERS) - set(SUBSET) - DEEP))
def test_no_draft_changes_a_token_of_any_architecture(name, tmp_path):
    check(name, tmp_path)
