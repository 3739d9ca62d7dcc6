"""What a user does on the server's page, for tests in a browser."""

import pytest

expect = pytest.importorskip("playwright.sync_api").expect


def ask(page, text="Hi"):
    """Send a message, once the page knows its model and no reply is under way any more."""
    expect(page.locator("#context-words")).to_contain_text("tokens of context")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def last_reply(page):
    return page.get_by_role("article", name="Reply").last
