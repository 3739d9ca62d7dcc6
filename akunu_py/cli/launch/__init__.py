"""`akunu launch`: a coding agent over a model of this machine."""

from akunu_py.cli.launch.command import launch

__all__ = ["launch"]
