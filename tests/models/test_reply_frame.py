"""What surrounds a reply: on Metal the model stays wired, and the limit is put back."""

import logging

import mlx.core as mx
import pytest
from tiny_models import tiny

from akunu_py.models.reply_frame import ReplyFrame


@pytest.fixture
def limits(monkeypatch):
    """A GPU that should use 100,000 bytes at most; the limits that were set."""
    seen = [7]

    def set_limit(limit):
        seen.append(limit)
        return seen[-2]

    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 100_000})
    monkeypatch.setattr(mx, "set_wired_limit", set_limit)
    return seen


def frame():
    return ReplyFrame(mx.new_thread_local_stream(mx.default_device()))


def test_the_limit_is_raised_and_put_back(limits):
    frames, model = frame(), tiny()
    with frames(model):
        assert limits == [7, 100_000]
    assert limits == [7, 100_000, 7]
    with pytest.raises(KeyboardInterrupt), frames(model):
        raise KeyboardInterrupt
    assert limits[-1] == 7


def test_the_limit_stays_raised_until_the_last_of_several_replies_ends(limits):
    model = tiny()
    first, second = frame()(model), frame()(model)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert limits == [7, 100_000]
    second.__exit__(None, None, None)
    assert limits == [7, 100_000, 7]


def test_a_model_that_hardly_fits_is_told_once(limits, caplog):
    model, frames = tiny(), frame()
    size = sum(array.nbytes for array in [model.model.embed_tokens.weight])
    assert size > 10_000
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
