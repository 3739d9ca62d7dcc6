"""Limits of size and time that tests make small or large; each is set here alone."""

from akunu_py.engine import admission
from akunu_py.models import cached_rows
from akunu_py.models.heads import token_model


def set_turns(monkeypatch, *, rows=None, seconds=None):
    """Set how many rows a pass over a prompt has at most, and after how long it pauses."""
    if rows is not None:
        for module in (cached_rows, token_model):
            monkeypatch.setattr(module, "PREFILL_CHUNK", rows)
    if seconds is not None:
        monkeypatch.setattr(cached_rows, "_TURN_S", seconds)


def set_waits(monkeypatch, *, step=None, unread=None):
    """Set for how many seconds a step under way, or a reply nobody reads, is waited for."""
    if step is not None:
        monkeypatch.setattr(admission, "_STEP_TIMEOUT_S", step)
    if unread is not None:
        monkeypatch.setattr(admission, "_UNREAD_S", unread)
