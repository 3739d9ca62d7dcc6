"""A draft model's draws at a temperature of their own."""

import pytest
from drafting.scripted_token_model import begun

from akunu_lab.drafting.shaped import ShapedDrafter
from akunu_py import ConfigError, GenerationConfig


def test_draws_have_a_temperature_of_their_own():
    model, _ = begun(ShapedDrafter, rejection=True, draft_temperature=1.5)
    assert model.calls[0][2].config == GenerationConfig(temperature=1.5, top_k=5)


@pytest.mark.parametrize("temperature", [-0.5, float("nan"), 0.0001])
def test_a_temperature_out_of_range(temperature):
    with pytest.raises(ConfigError, match=f"draft_temperature is {temperature}"):
        begun(ShapedDrafter, draft_temperature=temperature)
