"""What the page at `/` does with messages that wait, full contexts, long pastes and other tabs, in Chromium."""

import json

import pytest
from page_actions import ask, last_reply, reload, wait_until_kept
from scripted_server import ACCEPTED, USAGE, Pause, running, said

from akunu_py.server.events import Finished, Usage
from akunu_py.values.reply_deltas import ContentDelta

expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = pytest.mark.slow


def message(page):
    return page.get_by_label("Message", exact=True)


def type_in(page, text):
    message(page).fill(text)
    page.keyboard.press("Enter")


def answered(page, count):
    expect(page.get_by_role("button", name="Retry this reply")).to_have_count(count)
    expect(page.locator(".reply[aria-busy=true]")).to_have_count(0)


def texts(request):
    return [one.text for one in request.messages]


def unsent_is_kept(page, text):
    while page.evaluate("history.state?.text") != text:
        page.wait_for_timeout(10)


def test_retry_belongs_to_the_reply(server, backend, open_page):
    backend.play(said("One"), said("Two"), said("Three"))
    page = open_page(server)
    ask(page, "A")
    for reply in ("Two", "Three"):
        answered(page, 1)
        last_reply(page).get_by_role("button", name="Retry this reply").click()
        expect(last_reply(page).locator(".answer")).to_have_text(reply)
    answered(page, 1)
    expect(page.locator(".reply .branches")).to_have_text("3 of 3")
    expect(page.locator(".asked .branches")).to_have_count(0)
    last_reply(page).get_by_role("button", name="Previous reply").click()
    expect(last_reply(page).locator(".answer")).to_have_text("Two")
    # The model is told of the reply that is shown.
    ask(page, "B")
    answered(page, 2)
    assert texts(backend.request) == ["A", "Two", "B"]


def test_messages_wait_for_the_reply_and_are_withdrawn(server, backend, open_page):
    backend.play([ACCEPTED, ContentDelta("One"), Pause(), Finished("stop", USAGE)], said("Two"))
    page = open_page(server)
    ask(page, "A")
    expect(last_reply(page).locator(".answer")).to_have_text("One")
    for text in ("B", "C", "D"):
        type_in(page, text)
    waiting = page.locator("#queue .waiting")
    expect(waiting).to_have_text(["B", "C", "D"])
    expect(message(page)).to_have_value("")
    page.get_by_role("button", name="Withdraw C").click()
    expect(message(page)).to_have_value("C")
    expect(message(page)).to_be_focused()
    message(page).fill("")
    page.keyboard.press("ArrowUp")
    expect(message(page)).to_have_value("D")
    expect(waiting).to_have_text(["B"])
    unsent_is_kept(page, "B\n\nD")
    reload(page)
    # What waited is typed again, since the reply has ended with its page.
    expect(message(page)).to_have_value("B\n\nD")
    page.get_by_role("button", name="New chat").click()
    backend.play([ACCEPTED, ContentDelta("One"), Pause(), Finished("stop", USAGE)], said("Two"))
    ask(page, "A")
    type_in(page, "B")
    type_in(page, "C")
    expect(waiting).to_have_text(["B", "C"])
    backend.replies[0].go_on()
    answered(page, 3)
    expect(page.locator("#queue")).to_be_hidden()
    assert [texts(one)[-1] for one in backend.requests] == ["A", "B", "C"]


def test_messages_wait_until_a_failure_is_retried(server, backend, open_page):
    backend.play([ACCEPTED, ContentDelta("O"), Pause(), RuntimeError()], said("One"), said("Two"))
    page = open_page(server)
    ask(page, "A")
    expect(last_reply(page).locator(".answer")).to_have_text("O")
    type_in(page, "B")
    backend.replies[0].go_on()
    expect(page.get_by_role("alert").last).to_be_visible()
    answered(page, 1)
    expect(page.locator("#queue .waiting")).to_have_text(["B"])
    last_reply(page).get_by_role("button", name="Retry this reply").click()
    answered(page, 2)
    assert texts(backend.request) == ["A", "One", "B"]


def test_up_recalls_questions_where_nothing_is_typed(server, open_page):
    page = open_page(server)
    for count, text in enumerate(("One", "Two\nlines"), 1):
        ask(page, text)
        answered(page, count)
    seen = []
    for key in ("ArrowUp", "ArrowUp", "ArrowUp", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
        seen.append(message(page).input_value())
    assert seen == ["Two\nlines", "One", "One", "Two\nlines", ""]
    message(page).fill("typed")
    page.keyboard.press("ArrowUp")
    expect(message(page)).to_have_value("typed")


PASTE = """(node, text) => {
    const clipboardData = new DataTransfer();
    clipboardData.setData("text/plain", text);
    return node.dispatchEvent(new ClipboardEvent("paste", {clipboardData, bubbles: true, cancelable: true}));
}"""


def test_long_paste_folds_and_outlives_a_reload(server, backend, open_page):
    page = open_page(server)
    lines = "\n".join(f"{n}" for n in range(300))
    assert message(page).evaluate(PASTE, "\n".join("a" * 90))
    assert not message(page).evaluate(PASTE, lines)
    chip = page.locator("#chips li")
    expect(chip.locator(".name")).to_have_text("pasted, 300 lines")
    expect(chip.locator(".size")).to_be_visible()
    expect(chip.locator("pre")).to_be_hidden()
    chip.locator("summary").click()
    expect(chip.locator("pre")).to_have_text(lines)
    message(page).fill("What is it?")
    unsent_is_kept(page, "What is it?")
    reload(page)
    expect(chip.locator(".name")).to_have_text("pasted, 300 lines")
    expect(message(page)).to_have_value("What is it?")
    ask(page, "What is it?")
    answered(page, 1)
    assert texts(backend.request) == [f"pasted, 300 lines:\n```\n{lines}\n```\n\nWhat is it?"]
    unsent_is_kept(page, "")
    reload(page)
    expect(page.get_by_role("article", name="Reply")).to_have_count(1)
    expect(message(page)).to_have_value("")
    expect(chip).to_have_count(0)


def filling(tokens, reason="length"):
    """The script of a reply after which the context has so many tokens."""
    usage = Usage(prompt_tokens=tokens - 10, completion_tokens=10)
    return [ACCEPTED, ContentDelta("x" * 1000), Finished(reason, usage)]


def test_full_context_is_told_and_drops_the_oldest_turns(server, backend, open_page):
    """The scripted model's context has 4,096 tokens, and each character is one."""
    backend.play(filling(1500, "stop"), filling(2500, "stop"), filling(3500, "stop"), said("End"))
    page = open_page(server)
    for count in (1, 2, 3):
        ask(page, f"{count}")
        answered(page, count)
    expect(page.get_by_text("dropped")).to_have_count(0)
    # An eighth of the context, 512 tokens, is for the reply: 3,003 + 581 no longer fit, 580 did.
    ask(page, "y" * 582)
    answered(page, 4)
    asked = [text[:1] for text in texts(backend.request)]
    # At most 2,048 tokens are left: one earlier turn with its 1,001 characters, and the message.
    assert asked == ["3", "x", "y"]
    expect(page.get_by_text("the oldest 2 turns are dropped")).to_be_visible()
    reload(page)
    expect(page.get_by_text("the oldest 2 turns are dropped")).to_be_visible()
    backend.play(filling(4096))
    ask(page, "z")
    answered(page, 5)
    # What was dropped stays away, and is not told again.
    assert [text[:1] for text in texts(backend.request)] == ["3", "x", "y", "E", "z"]
    expect(page.get_by_text("turns are dropped")).to_have_count(1)
    expect(last_reply(page)).to_contain_text(
        "Ended: the context is full. Continue drops the oldest turns, and so does the next message."
    )


def test_ends_say_what_comes_next(server, backend, open_page):
    backend.play(said("a", reason="loop"), said("b", reason="length"), filling(4096))
    page = open_page(server)
    for end in ("“Stop loops” in the settings lets", "Continue goes on", "Ask for a shorter reply"):
        ask(page, "Hi")
        expect(last_reply(page)).to_contain_text(end)
        expect(page.locator("#status")).to_contain_text(end)
        page.get_by_role("button", name="New chat").click()


def exported(*chats):
    turns = [{"question": title, "content": title} for title in chats]
    found = [
        {"title": turn["question"], "turns": [turn] if turn["question"] else []} for turn in turns
    ]
    return json.dumps({"format": "akunu-chats", "chats": [*found, None]}).encode()


def test_import_says_what_came_and_what_did_not(server, open_page):
    page = open_page(server)
    files = {
        "a.json": exported("One", "Two"),
        "b.json": exported("Two"),
        "c.json": b"{",
        "d.md": b"x",
    }
    given = [{"name": name, "mimeType": "", "buffer": text} for name, text in files.items()]
    page.set_input_files("#import-files", given)
    notice = page.locator("#notice-words")
    expect(notice).to_have_text(
        "2 chats imported, 5 skipped: chat 3 of a.json (it has no messages), "
        "chat 1 of b.json (it is here already), chat 2 of b.json (it has no messages), "
        "c.json (it is neither JSON nor Markdown of this page), d.md (it has no messages)."
    )
    expect(page.get_by_role("article", name="You")).to_have_text("Two")
    assert page.evaluate("store.chats().then((all) => all.length)") == 2


def test_large_files_are_refused_at_once_and_others_are_added(server, backend, open_page):
    page = open_page(server)
    expect(page.locator("#context-words")).to_contain_text("4,096")
    held = []
    page.route("**/count_tokens", lambda route: held.append(route))
    sizes = {"huge": 2**20 + 1, "long": 17 * 4096, "small": 10}
    given = [{"name": name, "mimeType": "", "buffer": b"x" * size} for name, size in sizes.items()]
    page.set_input_files("#files", given)
    problem = page.locator("#composer-problem")
    # Before any count of the server.
    expect(problem).to_contain_text("huge has more than 1 MB. long takes too many tokens")
    expect(page.locator("#chips .name")).to_have_text(["small"])
    type_in(page, "Hi")
    # Two requests tell what the file takes, and one whether the message fits.
    while len(held) < 3:
        page.wait_for_timeout(10)
    for one in held:
        one.continue_()
    answered(page, 1)
    assert texts(backend.request) == [f"small:\n```\n{'x' * 10}\n```\n\nHi"]


def test_tabs_overwrite_nothing_of_each_other(server, backend, open_page):
    page = open_page(server)
    ask(page, "One")
    answered(page, 1)
    other = open_page(server, beside=page)
    other.goto(page.url)
    reload(other)
    answered(other, 1)
    # A name that one gives while the other has a reply under way, and a question meanwhile.
    backend.play([ACCEPTED, ContentDelta("Half"), Pause(), Finished("stop", USAGE)], said("Whole"))
    ask(other, "Two")
    expect(last_reply(other).locator(".answer")).to_have_text("Half")
    page.evaluate("panels.chats.show(true)")
    page.get_by_role("button", name="Rename this chat").click()
    page.keyboard.type("Mine")
    page.keyboard.press("Enter")
    expect(page.locator("#chat-list [aria-current]")).to_contain_text("Mine")
    page.evaluate("panels.chats.show(false)")
    ask(page, "Three")
    expect(last_reply(page).locator(".answer")).to_have_text("Whole")
    backend.replies[0].go_on()
    expect(last_reply(other).get_by_role("button", name="Retry")).to_be_visible()
    for one in (page, other):
        reload(one)
        expect(one).to_have_title("Mine · akunu")
        kept = one.evaluate(
            "[...turns.values()].map(({ question, content }) => question + content)"
        )
        assert kept == ["OneHello world", "TwoHalf", "ThreeWhole"]
    # Each writes those settings that it changes.
    for one, name, value in ((page, "temperature", "0.5"), (other, "max_tokens", "77")):
        one.evaluate("panels.settings.show(true)")
        one.locator(f"#option-{name}").fill(value)
        one.keyboard.press("Tab")
    page.wait_for_timeout(100)
    reload(page)
    expect(page.locator("#option-temperature")).to_have_value("0.5")
    expect(page.locator("#option-max_tokens")).to_have_value("77")


def test_reply_that_another_tab_writes_is_not_continued(server, backend, open_page):
    backend.play(said("One"), [ACCEPTED, ContentDelta(" and"), Pause(), Finished("stop", USAGE)])
    page = open_page(server)
    ask(page, "A")
    answered(page, 1)
    other = open_page(server, beside=page)
    other.goto(page.url)
    reload(other)
    answered(other, 1)
    last_reply(page).get_by_role("button", name="Continue").click()
    expect(last_reply(page).locator(".answer")).to_have_text("One and")
    last_reply(other).get_by_role("button", name="Continue").click()
    expect(other.locator("#notice-words")).to_contain_text("Another tab is writing this reply.")
    backend.replies[1].go_on()
    expect(last_reply(other).locator(".answer")).to_have_text("One and")
    last_reply(other).get_by_role("button", name="Continue").click()
    expect(last_reply(other).locator(".answer")).to_have_text("One and and")
    backend.replies[2].go_on()


def test_chats_are_read_while_the_server_is_down(open_page):
    with running() as server:
        page = open_page(server)
        ask(page, "A")
        answered(page, 1)
        page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        address = page.url
    wait_until_kept(page)
    page.goto("about:blank")
    page.goto(address)
    expect(last_reply(page).locator(".answer")).to_have_text("Hello world")
    expect(page.locator("#model-name")).to_contain_text("The server does not answer.")
    reload(page)
    expect(last_reply(page).locator(".answer")).to_have_text("Hello world")
    type_in(page, "B")
    expect(page.get_by_role("alert").last).to_contain_text("Check that akunu serve is running")
