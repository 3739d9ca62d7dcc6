"""The drafter `auto`: votes, calibrated estimates, lengths that pay."""

from akunu_py.drafting.auto.drafter import AutoDrafter, AutoState
from akunu_py.drafting.auto.learned import Learned, LearnedFile

__all__ = ["AutoDrafter", "AutoState", "Learned", "LearnedFile"]
