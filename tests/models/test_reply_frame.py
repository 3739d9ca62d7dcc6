"""What surrounds a reply: on Metal the model is wired once, and the limit never changes again."""

import logging

import mlx.core as mx
import pytest
from click.testing import CliRunner
from mlx.utils import tree_flatten
from tiny_models import tiny

from akunu_py.cli.main import cli
from akunu_py.engine.engine import Engine
from akunu_py.models import device
from akunu_py.models.device import ReplyFrame

MARGIN = 10**9


@pytest.fixture
def limits(monkeypatch):
    """A GPU that should use 10 GB at most; the limits that were set."""
    seen = []
    monkeypatch.setattr(
        mx, "device_info", lambda: {"max_recommended_working_set_size": 10 * MARGIN}
    )
    monkeypatch.setattr(mx, "set_wired_limit", seen.append)
    monkeypatch.setattr(device, "_wired_limit", device._WiredLimit())
    return seen


def frame():
    return ReplyFrame(mx.new_thread_local_stream(mx.default_device()))


def test_weights_and_a_margin_are_wired_once(limits):
    frames, model = frame(), tiny()
    size = sum(array.nbytes for _, array in tree_flatten(model.parameters()))
    for _ in range(3):
        with frames(model):
            assert limits == [size + MARGIN]
    with pytest.raises(KeyboardInterrupt), frame()(model):
        raise KeyboardInterrupt
    assert limits == [size + MARGIN]


def test_replies_that_overlap_and_a_larger_model_never_lower_the_limit(limits):
    first, larger = tiny(), tiny(num_hidden_layers=8)
    with frame()(first), frame()(larger):
        pass
    with frame()(first):
        pass
    assert len(limits) == 2
    assert limits == sorted(limits)


def test_no_more_is_wired_than_the_gpu_should_use(limits, monkeypatch):
    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 50_000})
    with frame()(tiny()):
        pass
    assert limits == [50_000]


def test_a_server_wires_nothing_unless_it_is_told_to(limits, monkeypatch, tiny_gguf):
    for option, wired in (([], False), (["--wire"], True)):
        found = []
        monkeypatch.setattr(
            "akunu_py.cli.serve._served_models",
            lambda paths, left_out, loading, found=found, **_: found.append(loading) or 1 / 0,
        )
        CliRunner().invoke(cli, ["serve", str(tiny_gguf), "--port", "0", *option])
        assert found[0].wired is wired
        with Engine.load(tiny_gguf, found[0], context=64) as engine:
            engine.generate("a", max_tokens=2)
            engine.lane().close()
        assert bool(limits) is wired


def test_a_model_that_hardly_fits_is_told_once(limits, caplog, monkeypatch):
    model, frames = tiny(), frame()
    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 50_000})
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with frames(model):
                pass
    (message,) = caplog.messages
    assert "of the 0.0 GB that the GPU should use at most" in message


def test_without_metal_nothing_is_set(monkeypatch):
    monkeypatch.setattr(mx, "device_info", dict)
    monkeypatch.setattr(mx, "set_wired_limit", lambda limit: pytest.fail("set"))
    with frame()(tiny()):
        pass
