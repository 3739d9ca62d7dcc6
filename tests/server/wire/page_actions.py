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


def talk(page, *questions):
    for question in questions:
        ask(page, question)
        expect(last_reply(page).get_by_role("button", name="Retry")).to_be_visible()


def wait_until_kept(page):
    """Wait for what the page writes: on a busy disk that takes longer than a scripted reply."""
    # Reading waits for earlier writes, those of other tabs too.
    page.evaluate("store.chats().then(() => null)")


def reload(page):
    wait_until_kept(page)
    page.reload()


def show_list(page):
    if not page.locator("#chats").is_visible():
        page.get_by_role("button", name="Chats", exact=True).click()
    return page.locator("#chat-list .open span:first-child")
