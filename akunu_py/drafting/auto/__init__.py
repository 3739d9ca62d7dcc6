"""The drafter `auto`: votes, calibrated estimates, lengths that pay."""

from akunu_py.drafting.auto.drafter import AutoDrafter
from akunu_py.drafting.auto.state import AutoState

__all__ = ["AutoDrafter", "AutoState"]
