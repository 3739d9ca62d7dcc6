"""A GGUF file is opened without transformers; mlx-lm stays whole for whoever asks for it."""

import mlx.core as mx
import mlx_lm
import pytest
from family_models import NAMES, build_family
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.utils import get_total_parameters
from programs import python

from akunu_py.models.expansion import num_parameters


def run(program, *arguments):
    return python("-c", program, *arguments).stdout.split()


REPLY = """
import sys
from akunu_py import Engine
from akunu_py.cli.main import main
with Engine.load(sys.argv[1]) as engine:
    assert engine.generate("hello", max_tokens=3).token_ids
print(*sorted({"transformers", "huggingface_hub", "httpx", "torch"} & set(sys.modules)), "end")
"""

WHOLE = """
import akunu_py.models
import sys
import mlx_lm
from mlx_lm.models import llama
assert "transformers" not in sys.modules
assert mlx_lm.__name__ == "mlx_lm" and mlx_lm.__path__ and not hasattr(mlx_lm, "nothing")
from mlx_lm import generate, load
print(load.__module__, mlx_lm.__version__, mlx_lm.load is load)
"""


def test_a_gguf_file_needs_no_transformers(tiny_gguf):
    assert run(REPLY, tiny_gguf) == ["end"]


@pytest.mark.slow
def test_mlx_lm_is_whole_once_its_names_are_asked_for():
    assert run(WHOLE) == ["mlx_lm.utils", mlx_lm.__version__, "True"]


@pytest.mark.slow
def test_an_mlx_lm_that_was_imported_before_stays():
    program = "import mlx_lm; whole = mlx_lm.load; import akunu_py.models, mlx_lm as after\n"
    assert run(program + "print(after.load is whole, type(after).__name__)") == ["True", "module"]


@pytest.mark.parametrize("name", NAMES[::6])
def test_all_parameters_are_counted(name):
    """mlx-lm's own count leaves out those of modules that hold others."""
    model = build_family(name)
    dense = tree_flatten(model.parameters())
    if not any(path.endswith("scales") for path, _ in dense):
        assert num_parameters(model) == sum(array.size for _, array in dense)
    assert num_parameters(model) >= get_total_parameters(model)


def test_codes_are_not_counted():
    model = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 7, bias=False), nn.RMSNorm(7))
    assert num_parameters(model) == 64 * 32 + 32 + 32 * 7 + 7
    nn.quantize(model, group_size=32, bits=4)
    mx.eval(model.parameters())
    assert num_parameters(model) == 64 * 32 + 32 + 32 * 7 + 7
