import pytest
from chromium import chromium
from scripted_server import PATIENCE_S, ScriptedBackend, running

# Playwright's own five and thirty seconds are short on a busy machine.
PATIENCE_MS = 1000 * PATIENCE_S


@pytest.fixture(scope="module")
def shared_server():
    with running() as server:
        yield server


@pytest.fixture
def server(shared_server):
    """A server with a scripted backend, which says "Hello world" unless a test gives a script."""
    shared_server.backend.__init__()
    return shared_server


@pytest.fixture
def backend(server) -> ScriptedBackend:
    return server.backend


@pytest.fixture(scope="module")
def browser():
    with chromium(PATIENCE_MS) as browser:
        from playwright.sync_api import expect

        expect.set_options(timeout=PATIENCE_MS)
        yield browser


@pytest.fixture
def open_page(browser):
    """Open the page of a server; at the end there must be no error and no foreign request."""
    opened, errors, requests = [], [], []

    def open_(server, beside=None, **options):
        """Open it in a new profile, or in that of a page `beside` it."""
        options = {"viewport": {"width": 900, "height": 700}, "reduced_motion": "reduce"} | options
        context = beside.context if beside else browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        opened.append((context, server.url))
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: errors.append(dialog.message))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(server.url)
        return page

    yield open_
    for context, _ in opened:
        context.close()
    # A status that the page tells the user about is no violation.
    assert [error for error in errors if "Failed to load resource" not in error] == []
    allowed = tuple(f"{url}/" for _, url in opened)
    assert [url for url in requests if not url.startswith((*allowed, "data:", "blob:"))] == []
