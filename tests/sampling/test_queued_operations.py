"""What a choice queues on the device, operation by operation: each one is time of every step.

Mutants, made by hand, that these tests kill: a check on the device, in front of the token or behind it;
the total cut apart from the row; a draw that is not compiled.
"""

import io
import re

import mlx.core as mx
import numpy as np
import pytest

from akunu_py.models.device import disable_compile_with_kernels
from akunu_py.sampling.sampler import ForcedSampler, Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.types import GenerationConfig

SIZE = 300
VIEWS = {"Broadcast", "Squeeze"}
"""Operations that move no number."""


def operations(*arrays):
    """The operations that these arrays wait for, but for views, in order."""
    dot = io.StringIO()
    mx.export_to_dot(dot, *arrays)
    names = re.findall(r'label ?= ?"([A-Z]\w*)', dot.getvalue())
    return sorted(name.removeprefix("Akunu") for name in names if name not in VIEWS)


def chain(**options):
    return TransformChain.from_config(GenerationConfig(**options), SIZE)


def chosen(sampler):
    row = mx.array(np.random.default_rng(3).normal(0, 3, (1, SIZE)).astype(np.float32))
    # Once before: a fused kernel is made at first use.
    mx.eval(row, sampler.choose(row, 20))
    return sampler.choice(row, 20)


def test_a_greedy_choice_is_the_argmax_of_log_probabilities():
    """One operation more than mlx-lm's loop has, for logits of +inf; the host does the check."""
    choice = chosen(Sampler(chain(), 7, SIZE))
    assert operations(*choice) == ["ArgReduce", "LogSumExp", "Minimum", "Subtract"]


def test_the_check_costs_no_operation():
    """The total is computed anyway, and is what the host looks at; with penalties, too."""
    choice = chosen(Sampler(chain(temperature=0.8, repetition_penalty=1.2), 7, SIZE))
    assert operations(*choice) == operations(choice.token)
    assert set(operations(choice.total)) < set(operations(choice.token))


@pytest.fixture
def compiled():
    """As on a GPU: on a CPU with kernels nothing is compiled."""
    mx.enable_compile()
    yield
    disable_compile_with_kernels()


@pytest.mark.usefixtures("compiled")
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
    assert choice.token.item() == 5
