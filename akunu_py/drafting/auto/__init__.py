"""The drafter `auto`: votes, calibrated estimates, lengths that pay."""

from akunu_py.drafting.auto.drafter import AutoDrafter, AutoState

__all__ = ["AutoDrafter", "AutoState"]
