"""What tests of several commands use."""

import pytest


@pytest.fixture
def machine_memory(monkeypatch):
    """A function that says how many bytes of memory this machine has, all of them free."""

    def choose(limit):
        monkeypatch.setattr("akunu_py.models.device.memory_limit", lambda: limit)
        monkeypatch.setattr("mlx.core.get_active_memory", lambda: 0)

    return choose


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Write the settings file."""
    path = tmp_path / "config.toml"
    path.write_text("")
    monkeypatch.setenv("AKUNU_CONFIG", str(path))
    return path


@pytest.fixture
def colors(monkeypatch):
    """Variables of a terminal with colours, and no other that changes what it shows."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "COLORTERM", "FORCE_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
