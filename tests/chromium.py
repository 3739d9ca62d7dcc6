"""Chromium of this machine, for tests that look at what a browser shows, and what checks its pages."""

import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@contextmanager
def chromium(patience_ms):
    """Yield the browser; skips the test where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("there is no Chromium; install it: apt-get install chromium")
    # Chromium's sandbox does not work for root.
    options = [*OPTIONS, "--no-sandbox"] if os.geteuid() == 0 else OPTIONS
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=list(options), timeout=patience_ms
        )
        yield browser
        browser.close()


def axe_core():
    """Return the script that checks a page's accessibility; skips the test where there is none."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm, which installs axe-core")
    folder = subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, check=True)
    path = Path(folder.stdout.strip(), "axe-core", "axe.min.js")
    if not path.exists():
        pytest.skip("there is no axe-core; install it: npm install -g axe-core")
    return path.read_text(encoding="utf-8")
