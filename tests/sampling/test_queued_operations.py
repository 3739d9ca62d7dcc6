"""What a choice queues on the device, operation by operation: each one is time of every step.

Mutants, made by hand, that these tests kill: the check computed before the token that is fed; `isfinite`
for the check; the total cut apart from the row; a draw that is not compiled.
"""

import io
import re

import mlx.core as mx
import numpy as np
import pytest

from akunu_py.sampling.forced import ForcedSampler
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.types import GenerationConfig

SIZE = 300
VIEWS = {"Broadcast", "Squeeze"}
"""Operations that move no number."""


def operations(*arrays):
    """The operations that these arrays wait for, but for views, in order."""
    dot = io.StringIO()
    mx.export_to_dot(dot, *arrays)
    names = re.findall(r'label ?= ?"([A-Z]\w*)', dot.getvalue())
    return sorted(name for name in names if name not in VIEWS)


def chain(**options):
    return TransformChain.from_config(GenerationConfig(**options), SIZE)


def chosen(sampler):
    row = mx.array(np.random.default_rng(3).normal(0, 3, (1, SIZE)).astype(np.float32))
    # Once before: a fused kernel is made at first use.
    mx.eval(row, sampler.choose(row, 20))
    return sampler.choice(row, 20)


def test_a_greedy_choice_is_the_argmax_of_log_probabilities_and_a_check():
    choice = chosen(Sampler(chain(), 7, SIZE))
    log_probabilities = ["ArgReduce", "LogSumExp", "Minimum", "Subtract"]
    assert operations(choice.token) == log_probabilities
    assert operations(*choice) == sorted([*log_probabilities, "Greater", "Select"])


def test_a_token_is_fed_before_it_is_checked():
    """Of what is drawn, too; the next pass must not wait for what the host reads."""
    choice = chosen(Sampler(chain(temperature=0.8, repetition_penalty=1.2), 7, SIZE))
    assert "Select" not in operations(choice.token)
    assert "Select" in operations(choice.checked)


@pytest.mark.parametrize("options", [{}, {"top_k": 20, "top_p": 0.9}])
def test_a_draw_is_fused(options):
    """Around its reductions and sorts; twenty operations of the noise alone are one."""
    names = operations(*chosen(Sampler(chain(temperature=0.8, **options), 7, SIZE)))
    fused = [name for name in names if name.startswith("Compiled")]
    assert fused
    assert not {"Multiply", "Log", "Log1p", "Subtract"} & set(names)


def test_a_recorded_token_is_fed_after_the_work_of_choosing_one():
    choice = chosen(ForcedSampler(chain(), 20, (5,), SIZE))
    assert {"LogSumExp", "ArgReduce"} <= set(operations(choice.token))
    assert choice.token.item() == choice.checked.item() == 5
