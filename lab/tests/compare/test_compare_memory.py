"""The memory that a comparison needs: programs that are not installed need none."""

import importlib.util

import pytest
from click.testing import CliRunner

from akunu_py.cli.main import cli


@pytest.fixture
def compared(hub_cache, monkeypatch):
    """Run `akunu bench compare` where 1000 bytes are free and only llama.cpp is installed."""
    monkeypatch.setattr("akunu_py.models.device.memory_limit", lambda: 1000)
    monkeypatch.setattr("mlx.core.get_active_memory", lambda: 0)
    find, installed = importlib.util.find_spec, {"xllamacpp": "here", "torch": None}
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *rest: installed[name] if name in installed else find(name, *rest),
    )

    def run(*arguments):
        result = CliRunner().invoke(cli, ["bench", "compare", *map(str, arguments)])
        assert result.exit_code == 2, result.output
        return result.output

    return run


def test_other_programs_count_in_a_comparison(compared, tiny_gguf):
    output = compared(tiny_gguf)
    assert "llama.cpp's weights" in output
    assert "transformers" not in output
    output = compared(tiny_gguf, "--program", "mlx-lm")
    assert "llama.cpp" not in output
