"""Every kind of cache with adversarial drafts: the tokens are those of the plain loop.

In float32 all of them. In bfloat16 states and attention over rows in order are exact too; attention
over a window that has wrapped adds up in another order. There a near-tie may fall either way, and nothing else may.

Mutants that these tests kill: see test_rollback_parts.py.
"""

from dataclasses import replace

import mlx.core as mx
import pytest
from engine_inside import session_of
from family_models import NAMES, variant_of
from rollback_matrix import AUTO, EXPERTS, HEAD, LONG, SHORT, Family, Setting, settings_of
from tiny_architectures.builder import BUILDERS, build
from tiny_families import WINDOW
from tiny_models import adversary, generate, prompt_of

from akunu_py import Engine
from akunu_py.drafting import PlainDrafter
from akunu_py.models.rollback.caches import RollbackCaches
from akunu_py.values.types import GenerationConfig

NEAR_TIE = 0.05
"""Between the two best log-probabilities; bfloat16's spacing at 4 is 0.03."""
# One for each combination of kinds of caches, and for each kind of state.
SUBSET = [
    "llama", "deepseek_v32", "llama, 8-bit caches", "llama, sliding", "llama, windows with sinks",
    "gemma4", "iquestloopcoder", "llama4", "mamba2", "rwkv7", "qwen3_next", "lfm2", "kimi_linear",
    "longcat_flash_ngram", "falcon_h1", "recurrent_gemma", "baichuan_m1",
]  # fmt: skip

# Rows dropped, a window put back, a state replayed.
CONTROLS = {"llama", "llama, sliding", "mamba2"}


# Other fast tests go through their caches.
ALIKE = {"llama, windows with sinks", "rwkv7", "lfm2", "falcon_h1", "baichuan_m1"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in ALIKE else ()) for name in SUBSET]
)
def test_no_draft_changes_a_token(name):
    """Half of the families greedily with a short prompt, the others sampled with a long one."""
    settings = Setting(0.0, SHORT, ("half",)), Setting(0.8, LONG, ("random",))
    setting = settings[SUBSET.index(name) % 2]
    family = Family(name)
    if setting.prompt_size == SHORT:
        # The reply itself has to fill the window, and goes on for two more.
        family.num_tokens = 3 * WINDOW
    cell = family.run(setting)
    assert not cell.differences
    assert len(set(cell.tokens)) > 5
    assert cell.drafted > 1.25 * family.num_tokens


# Rows dropped, windows put back, and states replayed.
@pytest.mark.parametrize("name", ["llama", "llama, sliding", "qwen3_next"])
def test_no_guess_of_a_head_changes_a_token(name):
    """The other families are in `test_no_adversary_changes_a_token`."""
    family = Family(name)
    family.num_tokens = 20
    for kind in (HEAD, AUTO):
        cell = family.run(Setting(0.8, SHORT, (kind,)))
        assert not cell.differences
        assert cell.drafted > 2 * family.num_tokens


def rotated(name, dtype):
    """Every setting of a family with one of its adversaries, another one from family to family.

    scripts/describe_rollback.py runs all of them with all.
    """
    first = NAMES.index(name)
    return [
        replace(setting, drafters=(setting.drafters[(first + place) % len(setting.drafters)],))
        for place, setting in enumerate(settings_of(name, dtype))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_adversary_changes_a_token(name):
    family = Family(name)
    for setting in rotated(name, mx.float32):
        cell = family.run(setting)
        assert not cell.differences, setting
        # One adversary's: those that are always right, or wrong at once, draft the fewest.
        assert cell.drafted > 0.6 * family.num_tokens * cell.replies


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if variant_of(name).family not in EXPERTS])
def test_in_bfloat16_only_near_ties_differ(name):
    family = Family(name, mx.bfloat16)
    reordered = "cut off" in family.session.rows.rollback.methods
    for setting in rotated(name, mx.bfloat16):
        cell = family.run(setting)
        assert cell.drafted > 0
        for difference in cell.differences:
            assert reordered, (setting, difference)
            assert difference.margin < NEAR_TIE, (setting, difference)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in CONTROLS else pytest.mark.slow)
        for name in [*SUBSET, "deepseek_v41"]
    ],
)
def test_without_rollback_the_text_changes(name, monkeypatch):
    """The negative control: equality is due to the rollback, and the tests can see it."""
    family = Family(name)
    family.num_tokens = 20
    monkeypatch.setattr(RollbackCaches, "undo", lambda self, count: True)
    monkeypatch.setattr(RollbackCaches, "restore", lambda self, saved: None)
    (difference,) = family.run(Setting(0.0, SHORT, ("wrong",))).differences
    assert difference.index < 10


# Own classes, with sliding windows or states among them.
ARCHITECTURES = ["deepseek2", "falcon-h1", "gemma2"]
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


@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) & set(BUILDERS)))
def test_no_draft_changes_a_token_of_a_gguf_file(name, tmp_path):
    check(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(BUILDERS) - set(ARCHITECTURES) - DEEP))
def test_no_draft_changes_a_token_of_any_architecture(name, tmp_path):
    check(name, tmp_path)
