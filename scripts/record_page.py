#!/usr/bin/env python3
"""Record the server's page after a reply of the default model as a picture, for the docs.

    python scripts/record_page.py --picture docs/server-page.png

Starts `akunu serve`, opens the page in Chromium (`apt-get install chromium`), asks for the edit of
`akunu demo` and waits for the reply.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from akunu_py.cli.demo import _PROMPT
from akunu_py.model_store.default_model import fetched_model_path

PATIENCE_MS = 300_000
SIZE = {"width": 820, "height": 906}


def record(url: str, browser: str, picture: Path) -> None:
    """Ask on the page at an address, and keep what it shows after the reply."""
    # Chromium's sandbox does not work for root.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=options)
        page = chromium.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        page.set_default_timeout(PATIENCE_MS)
        page.goto(url)
        page.get_by_text("tokens of context").wait_for()
        page.get_by_label("Message").fill(_PROMPT)
        page.get_by_role("button", name="Send").click()
        page.get_by_role("button", name="Retry this reply").wait_for()
        page.screenshot(path=picture)
        chromium.close()


def main() -> None:
    """Start the server, record, and end it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, required=True, help="the PNG to write")
    picture = parser.parse_args().picture
    model, browser = fetched_model_path(), shutil.which("chromium")
    if model is None:
        sys.exit("the default model is not here; fetch it with: akunu models pull smollm2")
    if browser is None:
        sys.exit("there is no Chromium; install it: apt-get install chromium")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "akunu_py", "serve", str(model), "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            # The first line says that it answers.
            print(server.stderr.readline().rstrip(), file=sys.stderr)
            record(f"http://127.0.0.1:{port}/", browser, picture)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
