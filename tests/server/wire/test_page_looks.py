"""How the page at `/` looks in Chromium: its panels, icons and figures, an empty chat, wide tables."""

from dataclasses import replace

import pytest
from chromium import axe_core
from page_actions import ask, last_reply, reload, show_list, talk
from scripted_server import ACCEPTED, MODEL, USAGE, said, thought

from akunu_py.server.backend import StoredFacts
from akunu_py.server.events import Finished
from akunu_py.values.reply_deltas import ContentDelta

expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = pytest.mark.slow

WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}


def test_list_is_open_where_there_is_room_unless_it_was_closed(server, open_page):
    page = open_page(server, viewport=WIDE)
    expect(page.get_by_role("navigation", name="Chats")).to_be_visible()
    page.get_by_role("button", name="Close the list").click()
    expect(page.get_by_role("button", name="Chats", exact=True)).to_be_focused()
    reload(page)
    expect(page.locator("#welcome-size")).to_contain_text("4,096")
    expect(page.get_by_role("navigation", name="Chats")).to_be_hidden()
    page.get_by_role("button", name="Chats", exact=True).click()
    reload(page)
    expect(page.get_by_role("navigation", name="Chats")).to_be_visible()


DAYS = """() => Promise.all([0, 1, 2, 7, 8, 30].map((days) => {
    const [chat, day] = [newChatRecord(), new Date()];
    day.setDate(day.getDate() - days);
    return store.put([{...chat, title: `${days}`, changed: day.getTime()}], []);
})).then(showChats)"""


def test_chats_are_listed_by_days(server, open_page):
    page = open_page(server, viewport=WIDE)
    page.evaluate(DAYS)
    expect(page.locator("#chat-list .open")).to_have_count(6)
    listed = "all => all.map((one) => one.textContent)"
    found = page.locator("#chat-list :is(h2, .open)").evaluate_all(listed)
    assert found == [
        "Today", "0", "Yesterday", "1", "Previous 7 days", "2", "7", "Previous 30 days", "8", "30",
    ]  # fmt: skip
    assert page.evaluate("dayOf(new Date(2020, 1, 3, 23, 59))") == "February 2020"


@pytest.mark.parametrize(("panel", "opener", "closer"), [
    ("#chats", "Chats", "Close the list"), ("#settings", "Settings", "Close the settings"),
])  # fmt: skip
def test_panel_covers_a_narrow_page_until_it_is_left(server, open_page, panel, opener, closer):
    page = open_page(server, viewport=PHONE)
    opened = page.locator(panel)
    leave = [
        lambda: page.keyboard.press("Escape"),
        lambda: page.get_by_role("button", name=closer).click(),
        lambda: page.mouse.click(385 if panel == "#chats" else 5, 400),
    ]
    for way in leave:
        page.get_by_role("button", name=opener, exact=True).click()
        expect(page.get_by_role("button", name=closer)).to_be_focused()
        assert page.evaluate("$('page').inert")
        way()
        expect(opened).to_be_hidden()
        page.wait_for_function("!$('page').inert")
    page.get_by_role("button", name=opener, exact=True).click()
    page.set_viewport_size(WIDE)
    expect(opened).to_be_visible()
    # The page hears of its size in a turn of its own.
    page.wait_for_function("!$('page').inert")


def test_five_fields_come_first_and_the_others_are_folded(server, open_page):
    page = open_page(server)
    page.get_by_role("button", name="Settings").click()
    fields = page.locator("#settings :is(input:not([type=checkbox]), select, textarea)")
    labels = (
        "all => all.filter((one) => one.checkVisibility()).map((one) => one.labels[0].textContent)"
    )
    expect(page.get_by_label("Max tokens")).to_be_visible()
    assert fields.evaluate_all(labels) == [
        "System prompt", "Thinking", "Temperature", "Top p", "Max tokens"
    ]  # fmt: skip
    page.get_by_text("More options").click()
    assert len(fields.evaluate_all(labels)) > 10


def test_empty_chat_shows_the_model_and_examples(server, backend, open_page):
    stored = StoredFacts(parameters=134_515_008, quantization="Q4_1", num_bytes=98_362_432)
    backend.served = [replace(MODEL, stored=stored)]
    page = open_page(server)
    expect(page.get_by_role("heading", name="Tiny Model")).to_be_visible()
    expect(page.get_by_text("135M parameters · Q4_1 · 98 MB · context 4,096")).to_be_visible()
    examples = page.get_by_role("list", name="Examples").get_by_role("button")
    expect(examples).to_have_count(4)
    page.get_by_label("Message", exact=True).fill("Unsent")
    examples.nth(1).click()
    expect(last_reply(page).locator(".answer")).to_have_text("Hello world")
    assert backend.request.messages[-1].text.startswith("Write a Python function")
    expect(examples.first).to_be_hidden()
    expect(page.get_by_label("Message", exact=True)).to_have_value("Unsent")


OPACITY = "node => getComputedStyle(node).opacity"


def test_icons_show_on_hover_and_focus_and_always_on_touch(server, open_page):
    page = open_page(server, viewport=WIDE)
    talk(page, "One", "Two")
    copies = page.get_by_role("button", name="Copy this reply")
    rename = page.get_by_role("button", name="Rename this chat")
    assert [one.evaluate(OPACITY) for one in (*copies.all(), rename)] == ["0", "1", "0"]
    page.get_by_role("article", name="Reply").first.hover()
    assert copies.first.evaluate(OPACITY) == "1"
    rename.focus()
    assert [one.evaluate(OPACITY) for one in (copies.first, rename)] == ["1", "1"]
    expect(rename).to_have_attribute("title", "Rename this chat")
    touched = open_page(server, viewport=PHONE, has_touch=True, is_mobile=True)
    talk(touched, "One", "Two")
    copies = touched.get_by_role("button", name="Copy this reply")
    assert [one.evaluate(OPACITY) for one in copies.all()] == ["1", "1"]


def test_copy_of_a_reply_says_so(server, backend, open_page):
    backend.play(said("a **b**"))
    page = open_page(server)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    talk(page, "Hi")
    page.get_by_role("button", name="Copy this reply").click()
    expect(page.locator("#status")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == "a **b**"
    expect(page.get_by_role("button", name="Copy this reply").locator("use")).to_have_attribute(
        "href", "#i-copy"
    )


def test_sources_are_told_in_words(server, backend, open_page):
    named = [("from the prompt ", "prompt"), ("guess ", "mtp"), ("plug-in ", "own"), ("mine", None)]
    backend.play([ACCEPTED, *(ContentDelta(*one) for one in named), Finished("stop", USAGE)])
    page = open_page(server)
    ask(page)
    page.get_by_role("button", name="Sources").click()
    expect(page.locator("#legend")).to_have_text(
        "Tinted words were drafted and then checked, several at a time: copied from"
        " this conversation this reply earlier replies or guessed by the prediction head"
        " the draft model others. The model wrote the rest itself."
    )
    tints = last_reply(page).locator(".answer [data-tint]")
    expect(tints).to_have_count(3)
    told = "all => all.map((one) => [one.dataset.tint, one.title])"
    assert tints.evaluate_all(told) == [
        ["1", "Copied from this conversation"], ["4", "Guessed by the prediction head"],
        ["6", "Guessed by own"],
    ]  # fmt: skip


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_a_wide_table_scrolls_and_breaks_no_word(server, backend, open_page, viewport):
    names = [f"Parameters{number}" for number in range(20)]
    backend.play(said(f"|{'|'.join(names)}|\n|{'-|' * 20}\n|{'1|' * 20}\n"))
    page = open_page(server, viewport=viewport)
    talk(page, "Hi")
    table = last_reply(page).locator(".table")
    assert table.evaluate("node => node.scrollWidth > node.clientWidth")
    heights = table.locator("th").evaluate_all("all => all.map((one) => one.clientHeight)")
    assert max(heights) < 60
    assert page.locator("main").evaluate("node => node.scrollWidth <= node.clientWidth")


WRITTEN = """# Title\n\n[A link](http://example.org) and `code`.\n\n- [x] done\n\n> quoted
\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n```python\nx = 1  # one\n```\n\n$x^2$\n"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_serious(server, backend, open_page, scheme, width):
    """Rules of WCAG as Deque's axe-core checks them, in an empty chat and in one with all it can show."""
    axe = axe_core()
    backend.play(thought("Hm.", WRITTEN))
    page = open_page(server, color_scheme=scheme, viewport={"width": width, "height": 800})
    expect(page.locator("#welcome-size")).to_contain_text("context 4,096")
    page.evaluate(axe)
    serious = """async () => (await axe.run()).violations
        .filter(({impact}) => ["serious", "critical"].includes(impact))
        .map(({id, nodes}) => [id, nodes.map((one) => one.html)])"""
    assert page.evaluate(serious) == []
    page.set_input_files("#files", [{"name": "a.txt", "mimeType": "", "buffer": b"x"}])
    talk(page, "Hi")
    last_reply(page).locator(".figures").click()
    page.get_by_role("button", name="Sources", exact=True).click()
    assert page.evaluate(serious) == []
    page.get_by_role("button", name="Settings", exact=True).click()
    page.get_by_text("More options").click()
    assert page.evaluate(serious) == []
    page.get_by_role("button", name="Close the settings").click()
    show_list(page)
    assert page.evaluate(serious) == []
