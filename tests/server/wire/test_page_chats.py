"""Chats on the page at `/` in Chromium: kept, branched, exported, and big ones."""

import json
import random
from dataclasses import replace

import pytest
from page_actions import ask, last_reply, reload, show_list, talk, wait_until_kept
from scripted_server import ACCEPTED, MODEL, USAGE, Pause, ScriptedBackend, running, said

from akunu_py.server.events import Finished
from akunu_py.values.reply_deltas import ContentDelta

expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = pytest.mark.slow


def questions(page):
    return page.get_by_role("article", name="You").all_text_contents()


def has_focus(page):
    assert page.evaluate("document.activeElement !== document.body")


def test_chats_are_kept_found_renamed_and_deleted(server, backend, open_page):
    page = open_page(server)
    talk(page, "How do bees fly?", "And wasps?")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("article")).to_have_count(0)
    talk(page, "Name a river.")
    reload(page)
    expect(page.get_by_role("article", name="Reply")).to_have_count(1)
    assert questions(page) == ["Name a river."]
    titles = show_list(page)
    expect(titles).to_have_text(["Name a river.", "How do bees fly?"])
    page.get_by_label("Search chats").fill("WASPS and")
    expect(titles).to_have_text(["How do bees fly?"])
    titles.first.click()
    expect(page.get_by_text("And wasps?")).to_be_visible()
    show_list(page)
    page.get_by_role("button", name="Rename this chat").click()
    page.keyboard.type("Insects")
    page.keyboard.press("Enter")
    expect(page.locator("#chat-list [aria-current]")).to_be_focused()
    page.get_by_label("Search chats").fill("")
    expect(titles).to_have_text(["Name a river.", "Insects"])
    page.get_by_role("button", name="Delete this chat").click()
    expect(titles).to_have_text(["Name a river."])
    expect(page.get_by_role("article")).to_have_count(0)
    has_focus(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("article", name="Reply")).to_have_count(2)
    reload(page)
    expect(page.get_by_role("article", name="Reply")).to_have_count(2)
    ask(page, "Hi")
    expect(page.get_by_role("article", name="Reply")).to_have_count(3)
    assert [m.text for m in backend.request.messages][::2] == [
        "How do bees fly?", "And wasps?", "Hi"
    ]  # fmt: skip


TITLES = {
    "## A **bold** `name_of` it": "A bold name_of it",
    "> 1. | 2 * 3 | *slanted* |": "2 * 3 slanted",
    "- [x] \n+ -5 ~~or~~ C++": "-5 or C++",
    "```python\n  def f(): pass": "def f(): pass",
    "***\n": "a_b.txt",
}


def test_titles_are_words_without_marks(server, open_page):
    title = "all => all.map((one) => titleOf(one, [{ name: 'a_b.txt' }]))"
    assert open_page(server).evaluate(title, list(TITLES)) == list(TITLES.values())


def test_nothing_is_kept_where_the_user_says_so(server, open_page):
    page = open_page(server)
    talk(page, "First")
    page.get_by_role("button", name="Settings", exact=True).click()
    page.get_by_label("Keep chats and settings").uncheck()
    page.get_by_role("button", name="Delete all 1 chat").click()
    page.get_by_role("button", name="Close the settings").click()
    talk(page, "Second")
    expect(show_list(page)).to_have_text(["Second"])
    reload(page)
    expect(show_list(page)).to_have_count(0)
    assert page.evaluate("store.turns()") == []


def test_messages_are_edited_branched_continued_and_deleted(server, backend, open_page):
    backend.play(said("One"), said("Two"), said("Three"), said(" and more"))
    page = open_page(server)
    talk(page, "A", "B")
    page.get_by_role("button", name="Edit this question").first.click()
    page.get_by_label("The question, edited").fill("**A2**")
    page.keyboard.press("Control+Enter")
    expect(last_reply(page).locator(".answer")).to_have_text("Three")
    expect(page.locator(".user strong")).to_have_text("A2")
    has_focus(page)
    last_reply(page).get_by_role("button", name="Continue").click()
    expect(last_reply(page).locator(".answer")).to_have_text("Three and more")
    request = backend.request
    assert [m.text for m in request.messages] == ["**A2**", "Three"]
    assert request.continued
    last_reply(page).get_by_role("button", name="Edit this reply").click()
    page.get_by_label("The reply, edited").fill("Mine")
    page.get_by_role("button", name="Save").click()
    expect(last_reply(page).locator(".answer")).to_have_text("Mine")
    # Questions have their versions, and replies to the same question theirs.
    expect(page.locator(".asked .branches")).to_have_text("2 of 2")
    expect(page.locator(".reply .branches")).to_have_text("2 of 2")
    last_reply(page).get_by_role("button", name="Previous reply").click()
    expect(last_reply(page).locator(".answer")).to_have_text("Three and more")
    page.get_by_role("button", name="Previous question").click()
    assert questions(page) == ["A", "B"]
    reload(page)
    expect(page.get_by_text("1 of 2")).to_be_visible()
    page.get_by_role("button", name="Delete this question").nth(1).click()
    expect(page.get_by_role("article", name="You")).to_have_count(1)
    has_focus(page)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("article", name="You")).to_have_text(["A", "B"])
    page.get_by_role("button", name="Delete this question").first.click()
    expect(page.get_by_role("article", name="You")).to_have_text(["**A2**".strip("*")])


HARD = "# Title\n<!-- akunu: reply -->\n\\<!-- akunu: question -->\n\n## Head\nlast"


@pytest.mark.parametrize("form", ["Markdown", "JSON"])
def test_exports_are_imported_as_they_were(server, backend, open_page, tmp_path, form):
    backend.play(said(HARD))
    page = open_page(server)
    page.set_input_files("#files", [{"name": "a b.py", "mimeType": "", "buffer": b"## x\ny = 1"}])
    expect(page.locator("#chips .size")).to_be_visible()
    talk(page, HARD, "Two")
    show_list(page)
    with page.expect_download() as told:
        page.get_by_role("button", name=f"Export this chat as {form}").click()
    path = tmp_path / told.value.suggested_filename
    told.value.save_as(path)
    plain = """store.turns(chat.id).then((all) => all.map(
        (one) => [one.question, one.files.map((f) => [f.name, f.text]), one.content, !one.parent]))"""
    before = page.evaluate(plain)
    other = open_page(server)
    show_list(other)
    other.set_input_files("#import-files", path)
    expect(other.get_by_role("article", name="Reply")).to_have_count(2)
    assert other.evaluate(plain) == before
    (tmp_path / "x.json").write_text(json.dumps({"format": "akunu-chats", "chats": [{"turns": 3}]}))
    other.set_input_files("#import-files", tmp_path / "x.json")
    expect(other.get_by_text("0 chats imported, 1 skipped: x.json (it has no")).to_be_visible()


def drop(page, *paths):
    """Drag files over the page and drop them, as Chromium has it from the system."""
    control = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        control.send("Input.dispatchDragEvent", {"type": kind, "x": 99, "y": 99, "data": data})


PASTE = """(node, [name, text]) => {
    const clipboardData = new DataTransfer();
    clipboardData.items.add(new File(["x"], name));
    if (text) clipboardData.setData("text/plain", text);
    const pasted = new ClipboardEvent("paste", {clipboardData, bubbles: true, cancelable: true});
    return node.dispatchEvent(pasted);
}"""


def test_files_are_pasted_unless_they_are_pictures_of_text(server, open_page):
    page = open_page(server)
    message = page.get_by_label("Message", exact=True)
    # The browser itself pastes the text where the page leaves the event alone.
    assert message.evaluate(PASTE, ["picture.png", "Text"])
    assert not message.evaluate(PASTE, ["a.txt", ""])
    expect(page.locator("#chips .name")).to_have_text(["a.txt"])


def test_files_come_along_and_are_refused_beyond_the_context(server, backend, open_page, tmp_path):
    page = open_page(server)
    files = {"bin": b"\0\1", "latin": b"\xe4\n", "ok.txt": b"```\nhi\n"}
    for name, text in files.items():
        (tmp_path / name).write_bytes(text)
    expect(page.locator("#context-words")).to_contain_text("4,096")
    drop(page, *(tmp_path / name for name in files))
    expect(page.locator("#composer-problem")).to_contain_text(
        "bin is not a text file. latin is not"
    )
    expect(page.locator("#chips li")).to_have_count(1)
    # The scripted backend counts characters.
    expect(page.locator("#chips .size")).to_have_text("26 tokens")
    ask(page, "What is it?")
    expect(last_reply(page).locator(".answer")).to_have_text("Hello world")
    assert backend.request.messages[-1].text == "ok.txt:\n````\n```\nhi\n````\n\nWhat is it?"
    expect(page.locator("#chips")).to_be_hidden()
    asked = len(backend.requests)
    page.set_input_files("#files", [{"name": "big", "mimeType": "", "buffer": b"x" * 4095}])
    expect(page.locator("#composer-problem")).to_contain_text("the model's context has 4,096")
    expect(page.locator("#chips")).to_be_hidden()
    page.set_input_files("#files", [{"name": "some", "mimeType": "", "buffer": b"x" * 4000}])
    expect(page.locator("#chips .size")).to_be_visible()
    ask(page, "y" * 100)
    expect(page.locator("#composer-problem")).to_contain_text("With this file the message takes")
    expect(page.get_by_label("Message", exact=True)).to_have_value("y" * 100)
    # Nothing but counts was asked.
    assert page.get_by_role("article", name="Reply").count() == 1
    assert len(backend.requests) > asked
    page.get_by_role("button", name="Remove some").click()
    has_focus(page)
    page.keyboard.press("Enter")
    expect(page.get_by_role("article", name="Reply")).to_have_count(2)


def test_every_declared_option_reaches_the_request_and_is_kept_by_model(open_page):
    other = replace(MODEL, id="other", name="Other", loaded=False)
    with running(ScriptedBackend(served=(MODEL, other))) as server:
        page = open_page(server)
        choice = page.get_by_label("Model", exact=True)
        expect(choice.locator("option")).to_have_text(["tiny · loaded", "other"])
        page.get_by_role("button", name="Settings").click()
        options = server.get("/props").json()["options"]
        values = {
            "number": 0.5, "count": 3, "texts": ("a", "b\nc"), "biases": {4: -1.5}, "switch": False,
        }  # fmt: skip
        given = {one["name"]: values[one["kind"]] for one in options}
        page.get_by_text("More options").click()
        typed = {"stop": "a\nb\\nc", "logit_bias": "4 = -1.5"}
        for name, value in given.items():
            if value is False:
                page.locator(f"#option-{name}").select_option("off")
            else:
                page.locator(f"#option-{name}").fill(typed.get(name, str(value)))
        page.get_by_label("JSON schema").fill('{"type": "object"}')
        ask(page)
        expect(last_reply(page).locator(".answer")).to_have_text("Hello world")
        config = server.backend.request.config
        assert {name: getattr(config, name) for name in given} == given
        assert config.constraint is not None
        reload(page)
        page.get_by_role("button", name="Settings", exact=True).click()
        field = page.locator("#option-temperature")
        expect(field).to_have_value("0.5")
        choice.select_option("other")
        expect(field).to_have_value("")
        page.get_by_text("More options").click()
        page.get_by_label("JSON schema").fill("[1]")
        page.get_by_text("More options").click()
        ask(page, "No")
        # A field is shown with what is wrong with it.
        expect(page.get_by_label("JSON schema")).to_be_focused()
        expect(page.get_by_label("Message", exact=True)).to_have_value("No")
        assert len(server.backend.requests) == 1


def test_two_tabs_share_chats(server, backend, open_page):
    page = open_page(server)
    talk(page, "One")
    other = open_page(server, beside=page)
    show_list(other).first.click()
    expect(other.get_by_text("One", exact=True).last).to_be_visible()
    talk(page, "Two")
    expect(other.get_by_role("article", name="You")).to_have_text(["One", "Two"])
    backend.play([ACCEPTED, ContentDelta("Half"), Pause()])
    ask(other, "Three")
    expect(last_reply(other).locator(".answer")).to_have_text("Half")
    show_list(page)
    page.get_by_role("button", name="Delete this chat").click()
    expect(page.locator("#notice-words")).to_contain_text("deleted")
    # The reply under way keeps its chat.
    other.keyboard.press("Escape")
    expect(last_reply(other).get_by_text("Stopped.")).to_be_visible()
    expect(show_list(page)).to_have_text(["One"])
    reload(other)
    expect(other.get_by_role("article", name="You")).to_have_text(["One", "Two", "Three"])


def test_chat_deleted_during_its_reply_does_not_return(server, backend, open_page):
    backend.play([ACCEPTED, ContentDelta("Half"), Pause()])
    page = open_page(server)
    ask(page)
    expect(last_reply(page).locator(".answer")).to_have_text("Half")
    show_list(page)
    page.get_by_role("button", name="Delete this chat").click()
    expect(page.locator("#notice-words")).to_contain_text("deleted")
    assert page.evaluate("store.chats()") == page.evaluate("store.turns()") == []
    page.get_by_role("button", name="Undo").click()
    expect(last_reply(page).locator(".answer")).to_have_text("Half")


def test_question_before_the_settings_are_read_keeps_its_reply(server, backend, open_page):
    backend.play([ACCEPTED, ContentDelta("Half"), Pause()])
    other = open_page(server)
    # The transaction that reads one of them does not end before it may.
    other.context.add_init_script("""
        const get = IDBObjectStore.prototype.get;
        IDBObjectStore.prototype.get = function (name) {
            const hold = () => window.free || (get.call(this, "").onsuccess = hold);
            if (name === "sources") hold();
            return get.call(this, name);
        };
    """)
    page = open_page(server, beside=other)
    ask(page)
    expect(last_reply(page).locator(".answer")).to_have_text("Half")
    page.evaluate("window.free = true")
    wait_until_kept(page)
    page.keyboard.press("Escape")
    expect(last_reply(page).get_by_text("Stopped.")).to_be_visible()
    expect(last_reply(page).locator(".answer")).to_have_text("Half")


def test_chat_goes_on_where_the_storage_is_full(server, open_page):
    page = open_page(server)
    control = page.context.new_cdp_session(page)
    # Before anything is kept: Chromium remembers for a while how much room there was.
    control.send("Storage.overrideQuotaForOrigin", {"origin": server.url, "quotaSize": 1})
    talk(page, "One")
    expect(page.get_by_text("The browser's storage is full")).to_be_visible()
    talk(page, "Two")
    assert questions(page) == ["One", "Two"]
    # What is not kept can still be taken away.
    show_list(page)
    with page.expect_download() as told:
        page.get_by_role("button", name="Export this chat as JSON").click()
    [chat] = json.loads(told.value.path().read_text())["chats"]
    assert [turn["question"] for turn in chat["turns"]] == ["One", "Two"]


def test_keys_and_what_is_heard(server, backend, open_page):
    backend.play([ACCEPTED, ContentDelta("One.\n\nTwo.\n\n"), ContentDelta("Thr"), Pause()])
    page = open_page(server)
    page.keyboard.press("Control+/")
    expect(page.get_by_role("heading", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="Keys")).to_be_hidden()
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    ask(page)
    expect(last_reply(page).locator(".answer")).to_contain_text("Thr")
    # Blocks are told once, when they are complete.
    spoken = page.locator("#spoken p")
    expect(spoken).to_have_text(["One."])
    page.keyboard.press("Escape")
    expect(spoken).to_have_text(["One.", "Two.", "Thr"])
    expect(page.locator("#spoken")).to_have_attribute("aria-live", "polite")


CONTRASTS = """() => {
    const rgb = (color) => color.match(/[\\d.]+/g).map(Number);
    const light = (color) => rgb(color).slice(0, 3)
        .map((one) => (one /= 255) <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
        .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
    const behind = (node) => {
        const color = node ? getComputedStyle(node).backgroundColor : "rgb(255, 255, 255)";
        return (rgb(color)[3] ?? 1) ? color : behind(node.parentElement);
    };
    const found = [];
    for (const node of document.querySelectorAll("body *")) {
        const says = [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
        if (!(says || node.placeholder) || !node.checkVisibility() || node.disabled) continue;
        const [one, other] = [light(getComputedStyle(node).color), light(behind(node))];
        const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        found.push([contrast, (node.textContent || node.placeholder).slice(0, 40)]);
    }
    return found.sort(([one], [other]) => one - other);
}"""
# What a screen reader needs a name for.
NAMED = {"button", "textbox", "searchbox", "combobox", "checkbox", "spinbutton", "article",
         "region", "navigation", "dialog"}  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_and_has_a_name(server, backend, open_page, scheme):
    code = "```js\nlet x = 'a'; // 1\n```\n> quoted\n"
    backend.play([ACCEPTED, ContentDelta(code, "prompt"), Finished("stop", USAGE)])
    page = open_page(server, color_scheme=scheme, viewport={"width": 1280, "height": 900})
    page.set_input_files("#files", [{"name": "a.txt", "mimeType": "", "buffer": b"x" * 5000}])
    expect(page.locator("#composer-problem")).to_contain_text("the model's context has")
    talk(page, "Hi `x`")
    page.set_input_files("#files", [{"name": "b.txt", "mimeType": "", "buffer": b"x" * 5000}])
    for name in ("Sources", "Settings"):
        page.get_by_role("button", name=name, exact=True).click()
    page.get_by_text("More options").click()
    last_reply(page).locator(".figures").click()
    expect(page.locator("#composer-problem")).to_contain_text("the model's context has")
    expect(page.get_by_label("Search chats")).to_be_visible()
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 60
    assert [one for one in contrasts if one[0] < 4.5] == []
    control = page.context.new_cdp_session(page)
    nodes = control.send("Accessibility.getFullAXTree")["nodes"]
    told = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes if not node["ignored"]
    ]  # fmt: skip
    assert {role for role, _ in told} >= NAMED - {"dialog"}
    assert [one for one in told if one[0] in NAMED and not one[1].strip()] == []
    # A new block is told politely, without what was there before.
    [spoken] = control.send(
        "Accessibility.queryAXTree",
        {"objectId": control.send("Runtime.evaluate", {"expression": "$('spoken')"})["result"]["objectId"]},
    )["nodes"][:1]  # fmt: skip
    live = {one["name"]: one["value"]["value"] for one in spoken["properties"]}
    assert (live["live"], live["relevant"]) == ("polite", "additions")


def test_tab_goes_through_the_page_from_top_to_bottom(server, open_page):
    page = open_page(server)
    talk(page, "Hi")
    page.locator("#chats-toggle").focus()
    names = []
    for _ in range(12):
        page.keyboard.press("Tab")
        label = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
        names.append(page.evaluate(label))
    assert names == [
        "New chat", "Sources", "Settings", "Edit this question",
        "Delete this question and what follows", "6.0 tokens/s", "Copy this reply",
        "Retry this reply", "Continue this reply", "Edit this reply", "Add text files", "Message",
    ]  # fmt: skip


COLOURS = {
    "python": (
        'x = """a\n# b""" + 1.5 # if\nif y: "no"\n',
        [("string", '"""a\n'), ("string", '# b"""'), ("number", "1.5"), ("comment", "# if"),
         ("keyword", "if"), ("string", '"no"')],
    ),
    "js": (
        "/* a\n b */ const s = `x\ny`; // 1\n",
        [("comment", "/* a\n"), ("comment", " b */"), ("keyword", "const"), ("string", "`x\n"),
         ("string", "y`"), ("comment", "// 1")],
    ),
    "diff": ("@@ -1 +1 @@\n-a\n+b\n", [("keyword", "@@ -1 +1 @@"), ("deleted", "-a"), ("inserted", "+b")]),
    "sql": ("SELECT 1 -- x\n", [("keyword", "SELECT"), ("number", "1"), ("comment", "-- x\n")]),
    "none-such": ("if 1\n", []),
}  # fmt: skip


def test_code_has_colours(server, backend, open_page):
    page = open_page(server)
    backend.play(*([said(f"```{name}\n{code}```")] for name, (code, _) in COLOURS.items()))
    backend.scripts = [script[0] for script in backend.scripts]
    for name, (code, wanted) in COLOURS.items():
        talk(page, name)
        block = last_reply(page).locator(".code code")
        found = block.evaluate(
            "node => [...node.querySelectorAll('span > span')].map((one) => [one.className, one.textContent])"
        )
        assert [tuple(one) for one in found] == wanted, name
        assert block.text_content().rstrip("\n") == code.rstrip("\n")


WORK = """async (parts) => {
    const made = document.createElement.bind(document);
    let nodes = 0, longest = 0;
    document.createElement = (name) => (nodes += 1, made(name));
    new PerformanceObserver((list) => {
        for (const { duration } of list.getEntries()) longest = Math.max(longest, duration);
    }).observe({ type: "longtask" });
    document.body.classList.add("drafts");
    const text = new SourcedText();
    const node = document.body.appendChild(made("div"));
    const view = new MarkdownView(node, text);
    for (const pieces of parts) {
        for (const [piece, source] of pieces) text.add(piece, source);
        nodes = longest = 0;
        view.next = 0;
        view.update();
        while (view.busy) await new Promise((done) => setTimeout(done));
    }
    delete document.createElement;
    node.remove();
    return [nodes, node.textContent.length, longest];
}"""


WORDS = [" word", " **bold**", ".", " so"]
CODE = ["def", " name", "(", "x", ")", ":", " return", ' "text"', " # say"]
SHAPES = {
    "prose": ("", [*WORDS, "\n\n"]),
    "code": ("```python\n", [*CODE, "\n    "]),
    "one paragraph": ("", WORDS),
    "list": ("- ", [*WORDS, "\n- ", "\n\n  - "]),
    "code of an item": ("1. Do:\n\n   ```python\n   ", [*CODE, "\n   "]),
    "quote": ("> ", [*WORDS, "\n> "]),
    "table": ("|a|b|\n|-|-|\n|", [*WORDS, "|", "|\n|"]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_reading_of_a_long_reply_makes_what_is_new(server, open_page, shape):
    """A reply of 20,000 tokens, read before and behind the last 100."""
    draw = random.Random(3)
    begin, words = SHAPES[shape]
    texts = [begin, *(draw.choice(words) for _ in range(20_000))]
    pieces = [[text, draw.choice([None, None, "prompt"])] for text in texts]
    made, size, longest = open_page(server).evaluate(WORK, [pieces[:-100], pieces[-100:]])
    print(f"longest task: {longest:.1f} ms")
    assert size > 20_000
    assert made < 1000


BURSTS = """async (pieces) => {
    const made = document.createElement.bind(document);
    const channel = new MessageChannel();
    let burst = 0, most = 0, all = 0;
    channel.port1.onmessage = () => (burst = 0);
    document.createElement = (name) => {
        // The message is a task of its own.
        if (!burst) channel.port2.postMessage("");
        [burst, all] = [burst + 1, all + 1];
        most = Math.max(most, burst);
        return made(name);
    };
    const text = new SourcedText();
    for (const [piece, source] of pieces) text.add(piece, source);
    const node = document.body.appendChild(made("div"));
    const view = new MarkdownView(node, text);
    const shown = [];
    for (const drafts of [true, false, true]) {
        document.body.classList.toggle("drafts", drafts);
        if (view.ended) view.tintAnew();
        else view.end();
        while (view.busy) await new Promise((done) => setTimeout(done));
        shown.push([node.querySelectorAll("[data-tint]").length, node.textContent, node.innerHTML]);
    }
    delete document.createElement;
    return [most, all, shown];
}"""


@pytest.mark.parametrize("shape", ["prose", "code", "one paragraph", "table"])
def test_long_text_and_its_tints_are_made_in_pieces(server, open_page, shape):
    """Between two pieces the page answers its user: a task makes a thousand elements at most."""
    draw = random.Random(3)
    begin, words = SHAPES[shape]
    texts = [begin, *(draw.choice(words) for _ in range(10_000))]
    pieces = [[text, draw.choice([None, None, "prompt"])] for text in texts]
    most, made, shown = open_page(server).evaluate(BURSTS, [*pieces, ["\n", None]])
    assert most < 1000
    assert made > 4000
    tinted, plain, again = shown
    assert tinted == again
    assert tinted[0] > 1000
    assert plain[:2] == [0, tinted[1]]


def test_hostile_shapes_make_few_nodes(server, open_page):
    page = open_page(server)
    bars = "|" * 20_000
    for text in (
        f"{bars}\n{'|-' * 20_000}|\n{bars}\n", f"a|b\n-|-\n{bars}\n", "# " + " " * 50_000 + "x",
        "|" + "-" * 50_000 + "x\n" * 2, "`" * 50_000, "> " * 20_000, '```js\n"' + "'\"`" * 30_000,
        "$" * 50_000, "\\(" * 20_000, "[" * 50_000, "*a_" * 20_000, "[^1]" * 10_000,
    ):  # fmt: skip
        made, _, longest = page.evaluate(WORK, [[[text, None]]])
        print(f"{text[:12]!r}: {longest:.1f} ms")
        assert made < 1000, text[:20]


def test_chat_of_two_hundred_messages_opens(server, open_page):
    page = open_page(server)
    talk(page, "Begin")
    page.evaluate(
        """async () => {
            const some = [...turns.values()][0].record, all = [];
            for (let at = 1; at < 100; at += 1) {
                all.push({...some, id: `t${at}`, parent: all.at(-1)?.id ?? some.id, begun: some.begun + at,
                          question: `Question ${at}`, content: "Text **bold**\\n\\n```js\\nlet x = 1;\\n```\\n".repeat(4),
                          answerRuns: null});
            }
            await store.put([{...chat, leaf: "t99"}], all);
        }"""
    )
    reload(page)
    expect(page.get_by_role("article", name="Reply")).to_have_count(100)
    expect(last_reply(page).get_by_role("button", name="Continue")).to_be_in_viewport()
    begin = "(async () => { const begin = performance.now(); showBranch(chat.leaf); return performance.now() - begin; })()"
    print(f"shown in {page.evaluate(begin):.0f} ms")
    ask(page, "More")
    expect(page.get_by_role("article", name="Reply")).to_have_count(101)
