"""What tests of several commands use."""

import pytest


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Write the settings file."""
    path = tmp_path / "config.toml"
    path.write_text("")
    monkeypatch.setenv("AKUNU_CONFIG", str(path))
    return path
