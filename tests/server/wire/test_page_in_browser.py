"""The page at `/` in Chromium: what a user sees and does, and what the server is asked."""

import random
import re
from dataclasses import replace

import pytest
from kept_worker import Worker
from page_actions import ask, last_reply, reload
from scripted_server import (
    ACCEPTED,
    MODEL,
    USAGE,
    Pause,
    ScriptedBackend,
    running,
    said,
    thought,
)

from akunu_py.engine.engine import Engine
from akunu_py.server.backend import Health
from akunu_py.server.engine_backend import EngineBackend
from akunu_py.server.events import Accepted, Decoded, Finished, Prefilled
from akunu_py.server.prefix_cache import PrefixCache
from akunu_py.server.security import Access, digests
from akunu_py.system.errors import ContextOverflowError, ServerBusyError
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.reply_deltas import ContentDelta, ReasoningDelta

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect

pytestmark = pytest.mark.slow

KEY = "sk-test-0123456789abcdef"


def test_reply_streams_with_tints_and_stops_and_is_retried(server, backend, open_page):
    backend.play(
        [
            ACCEPTED,
            Decoded(1, 1),
            ContentDelta("Mine, "),
            Decoded(6, 2),
            ContentDelta("copied ", "prompt"),
            ContentDelta("twice", "reply"),
            Pause(),
        ],
        said("Another"),
    )
    page = open_page(server)
    expect(page.locator("#model-name")).to_have_text("tiny")
    expect(page.get_by_text("0 of 4,096 tokens of context")).to_be_visible()
    page.get_by_role("button", name="Sources").click()
    ask(page, "What is it?")
    reply = last_reply(page)
    expect(reply.locator(".answer")).to_have_text("Mine, copied twice")
    expect(reply.locator(".figures")).to_have_text("6 tokens · 67 % drafted")
    expect(reply).to_have_attribute("aria-busy", "true")
    tints = reply.locator(".answer [data-tint]")
    expect(tints).to_have_text(["copied ", "twice"])
    colors = [
        tint.evaluate("node => getComputedStyle(node).backgroundColor") for tint in tints.all()
    ]
    assert len({*colors, "rgba(0, 0, 0, 0)"}) == 3
    assert not backend.cancelled.is_set()
    page.get_by_role("button", name="Stop").click()
    assert backend.cancelled.wait(300)
    expect(reply.get_by_text("Stopped.")).to_be_visible()
    figures = reply.get_by_role("button", name="6 tokens · 67 % drafted")
    expect(reply.get_by_text("Reply: 6 tokens in 2 passes, 3.0 a pass")).to_be_hidden()
    figures.click()
    expect(figures).to_have_attribute("aria-expanded", "true")
    expect(reply.locator(".rest p")).to_have_text([
        "Reply: 6 tokens in 2 passes, 3.0 a pass",
        "Prompt: 30 tokens, 20 of them from the cache",
        "Text from this conversation 39 %, this reply 28 %, the model itself 33 %",
    ])  # fmt: skip
    page.get_by_role("button", name="Retry this reply").click()
    expect(last_reply(page).locator(".answer")).to_have_text("Another")
    expect(page.get_by_role("article", name="Reply")).to_have_count(1)
    expect(page.get_by_text("2 of 2")).to_be_visible()
    first, second = backend.requests
    assert first.messages == second.messages
    assert second.messages[-1].text == "What is it?"
    expect(page.get_by_text("12 tokens in")).to_have_count(0)
    expect(
        page.get_by_text("42 of 4,096 tokens of context20 cached10 read12 written")
    ).to_be_visible()


def test_settings_and_earlier_turns_reach_the_request(server, backend, open_page):
    backend.play(said("First"), thought("Hm.", "Second"), said("Third"))
    page = open_page(server)
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_label("Temperature", exact=True).fill("0.5")
    page.get_by_label("Max tokens").fill("77")
    for question, answer in (("One", "First"), ("Two", "Second"), ("Three", "Third")):
        ask(page, question)
        expect(last_reply(page).locator(".answer")).to_have_text(answer)
    request = backend.request
    assert [(message.role, message.text) for message in request.messages] == [
        ("system", "Be brief."), ("user", "One"), ("assistant", "First"), ("user", "Two"),
        ("assistant", "Second"), ("user", "Three"),
    ]  # fmt: skip
    assert request.messages[4].reasoning == "Hm."
    assert (request.config.temperature, request.config.max_tokens) == (0.5, 77)
    assert request.config.stop_loops
    page.get_by_label("Temperature", exact=True).fill("-3")
    ask(page, "Four")
    expect(page.get_by_label("Message", exact=True)).to_have_value("Four")
    assert len(backend.requests) == 3
    page.get_by_label("Temperature", exact=True).fill("")
    page.get_by_role("button", name="New chat").click()
    ask(page, "Five")
    expect(last_reply(page).locator(".answer")).to_have_text("Third")
    assert [message.text for message in backend.request.messages] == ["Be brief.", "Five"]


HOSTILE = (
    '<img src="x" onerror="alert(1)"><script>alert(2)</script><svg onload=alert(3)>'
    "![x](http://evil.example/a.png) [link](javascript:alert(4)) <a href='http://evil.example'>"
)


def test_markup_of_a_model_stays_text(server, backend, open_page):
    source = "prompt\u202e<b>"
    backend.play(
        [
            ACCEPTED,
            ReasoningDelta(HOSTILE),
            ContentDelta(f"{HOSTILE}\n\n```html\n{HOSTILE}\n```\n"),
            ContentDelta("user\u202egpj.exe \u2066x\x1b[31m", source),
            Finished("stop", USAGE),
        ]
    )
    page = open_page(server)
    ask(page, HOSTILE)
    reply = last_reply(page)
    expect(reply.locator("pre code")).to_have_text(HOSTILE)
    expect(reply.locator(".answer p").first).to_have_text(HOSTILE)
    expect(page.get_by_role("article", name="You")).to_have_text(HOSTILE)
    expect(reply.locator(".answer p").last).to_have_text("user\ufffdgpj.exe \ufffdx\ufffd[31m")
    marks = ":is(.answer, .thoughts) :is(img, script, svg, a, iframe, b, style, link)"
    assert page.locator(marks).count() == 0
    # The conversation has the text as it was, which the server's cache knows.
    ask(page)
    expect(page.get_by_role("article", name="Reply")).to_have_count(2)
    expect(last_reply(page).locator("pre code")).to_have_text(HOSTILE)
    assert backend.request.messages[1].text.endswith("\u2066x\x1b[31m")


MARKDOWN = """# Title
Some **bold**, *slanted* and `code` text, 2 * 3 * 4, snake_case_name, \\*stars\\*.

- one
  - **inner** one
- two

1. first
2. second

> quoted

```python
def f():
    return "**"
```

| a | b |
|---|---|
| 1 | `2` |

---
last
    indented
```"""


def test_markdown(server, backend, open_page):
    backend.play(said(MARKDOWN))
    page = open_page(server)
    ask(page)
    answer = last_reply(page).locator(".answer")
    expect(answer.locator("h1")).to_have_text("Title")
    expect(answer.locator("> p").first).to_have_text(
        "Some bold, slanted and code text, 2 * 3 * 4, snake_case_name, *stars*."
    )
    expect(answer.locator("p strong")).to_have_text("bold")
    expect(answer.locator("p em")).to_have_text("slanted")
    expect(answer.locator("> ul > li")).to_have_count(2)
    expect(answer.locator("ul ul strong")).to_have_text("inner")
    expect(answer.locator("ol li")).to_have_text(["first", "second"])
    expect(answer.locator("blockquote p")).to_have_text("quoted")
    assert answer.locator("pre code").first.text_content() == 'def f():\n    return "**"\n'
    expect(answer.locator("td")).to_have_text(["1", "2"])
    expect(answer.locator("hr")).to_have_count(1)
    assert answer.locator("> p").last.text_content() == "last\nindented"
    expect(answer.locator(".code")).to_have_count(1)


COMPARE = """texts => Promise.all(texts.map(async (pieces) => {
    const idle = async (view) => {
        while (view.busy) await new Promise((done) => setTimeout(done));
    };
    const shown = async (grows) => {
        const text = new SourcedText();
        const node = document.createElement("div");
        const view = new MarkdownView(node, text);
        for (const [part, source] of pieces) {
            text.add(part, source);
            if (!grows) continue;
            view.next = 0;
            view.update();
            await idle(view);
        }
        view.end();
        await idle(view);
        return node;
    };
    document.body.classList.add("drafts");
    const [whole, grown] = [await shown(false), await shown(true)];
    return [whole.textContent, whole.innerHTML, grown.innerHTML];
}))"""
BORDERS = ("1\n\n2. x\n\n1", "- a\n\n- b\n\n  c\n\nd\n- \n-", "|a|\n|-", "* * *\n* x", ">\n> >")


def test_text_that_grows_is_shown_as_the_whole_text(server, open_page):
    """Also where a piece turns what came before it into something else; and no letter is lost."""
    draw = random.Random(5)
    texts = [
        "".join(draw.choices("aabc *_>#|-1.\n\n" + "`~\\$" * (seed % 2), k=60))
        for seed in range(100)
    ]
    texts += [MARKDOWN, *BORDERS]
    pieces = [
        [
            [letter, [None, "prompt"][draw.randrange(2)]]
            for letter in re.findall(r"(?s).{1,3}", text)
        ]
        for text in texts
    ]
    found = open_page(server).evaluate(COMPARE, pieces)
    for text, (shown, whole, grown) in zip(texts, found, strict=True):
        assert grown == whole, text
        if not set("`~\\|") & set(text):
            assert re.findall("[a-c]", shown) == re.findall("[a-c]", text), text


def test_text_goes_in_the_direction_of_its_first_letter(server, backend, open_page):
    backend.play(said("1. abc \u05d0\n\n> 2 \u05d0 abc\n\n| \u0628 |\n|-|\n| a |"))
    page = open_page(server)
    ask(page)
    expect(last_reply(page).locator("td")).to_have_text("a")
    directions = "all => all.map((one) => [one.tagName, one.dir])"
    found = last_reply(page).locator(".answer [dir]").evaluate_all(directions)
    wanted = [
        ("OL", "ltr"), ("BLOCKQUOTE", "rtl"), ("P", "rtl"), ("DIV", "rtl"), ("TABLE", "rtl"),
        ("TH", "rtl"), ("TD", "ltr"),
    ]  # fmt: skip
    assert [tuple(one) for one in found] == wanted


def test_long_line_of_marks_takes_no_time_to_speak_of(server, open_page):
    page = open_page(server)
    pieces = [["**a `*_" * 10_000, None], ["\n- " * 2000, "prompt"]]
    [[shown, *_]] = page.evaluate(COMPARE, [pieces])
    assert shown.count("a") == 10_000


def test_whoever_is_at_the_end_stays_there(server, backend, open_page):
    """Also where the whole reply comes between two frames, as on a page in the background."""
    backend.play([ACCEPTED, ContentDelta("A line.\n\n" * 80), Finished("stop", USAGE)])
    page = open_page(server)
    expect(page.locator("#model-name")).to_have_text("tiny")
    page.evaluate("requestAnimationFrame = () => 1")
    ask(page, "Hi")
    expect(last_reply(page).get_by_role("button", name="Retry")).to_be_in_viewport()


def test_thoughts_fold_when_the_answer_begins(server, backend, open_page):
    backend.play([ACCEPTED, ReasoningDelta("Let me see."), Pause(), ContentDelta("Yes."), Pause()])
    page = open_page(server)
    ask(page)
    reply = last_reply(page)
    expect(reply.get_by_text("Thinking…")).to_be_visible()
    expect(reply.get_by_text("Let me see.")).to_be_visible()
    page.keyboard.press("Escape")
    expect(reply.get_by_text("Stopped.")).to_be_visible()
    expect(reply.get_by_text("Let me see.")).to_be_hidden()
    reply.get_by_text("Thoughts").click()
    expect(reply.get_by_text("Let me see.")).to_be_visible()


def test_queue(server, backend, open_page):
    backend.play([Pause()])
    backend.state = Health(running=1, waiting=3)
    page = open_page(server)
    ask(page)
    words = "The server is busy: 1 reply under way, 3 requests waiting."
    expect(page.get_by_text(words)).to_be_visible()


def test_prompt_that_is_read(server, backend, open_page):
    backend.play([Accepted(1200, 700), Prefilled(900), Pause()])
    page = open_page(server)
    ask(page)
    words = "Reading the prompt: 900 of 1,200 tokens, 700 of them from the cache."
    expect(page.get_by_text(words)).to_be_visible()
    expect(page.locator("#context-words")).to_contain_text("700 cached200 read0 written")
    widths = [
        page.locator(f"#context-bar .{name}").bounding_box()["width"]
        for name in ("cached", "prefilled")
    ]
    bar = page.locator("#context-bar").bounding_box()["width"]
    assert [round(4096 * width / bar / 100) for width in widths] == [7, 2]


def problem(page):
    return last_reply(page).get_by_role("alert")


@pytest.mark.parametrize(
    ("trained", "advice"),
    [
        (4096, "choose a model with a larger context."),
        (131_072, "with a larger --context (the model has 131,072 tokens)."),
    ],
)
def test_a_larger_context_is_advised_where_the_model_has_more(trained, advice, open_page):
    backend = ScriptedBackend(served=(replace(MODEL, trained=trained),))
    with running(backend) as server:
        page = open_page(server)
        backend.play([ContextOverflowError("x", num_tokens=5000, context=4096)])
        ask(page, "Hello")
        expect(problem(page)).to_contain_text(advice)


def test_errors_say_what_to_do(server, backend, open_page):
    page = open_page(server)
    page.clock.install()
    backend.refusal = ServerBusyError("32 requests wait already", retry_after_s=600)
    ask(page, "Hello")
    expect(problem(page)).to_have_text("The server is busy: 32 requests wait already.")
    retry = page.get_by_role("button", name="Retry this reply")
    expect(retry).to_be_disabled()
    backend.refusal = None
    backend.play([ContextOverflowError("x", num_tokens=5000, context=4096)])
    page.clock.fast_forward(600_000)
    retry.click()
    expect(problem(page)).to_contain_text(
        "no longer fits into the model's context. Begin a new chat"
    )
    backend.play([ACCEPTED, ContentDelta("Half a"), RuntimeError("secret detail")])
    retry.click()
    expect(problem(page)).to_contain_text("akunu failed; its log says where")
    expect(last_reply(page).locator(".answer")).to_have_text("Half a")
    page.route("**/v1/chat/completions", lambda route: route.abort())
    retry.click()
    expect(problem(page)).to_contain_text("The server does not answer. Check that akunu serve")
    page.unroute("**/v1/chat/completions")
    backend.play(said("Whole"))
    retry.click()
    expect(last_reply(page).locator(".answer")).to_have_text("Whole")
    expect(problem(page)).to_have_count(0)
    # A question without an answer is not sent again with the next one.
    backend.play([RuntimeError()], said("Next"))
    ask(page, "Lost")
    expect(problem(page)).to_be_visible()
    ask(page, "Kept")
    expect(last_reply(page).locator(".answer")).to_have_text("Next")
    assert [message.text for message in backend.request.messages] == ["Hello", "Whole", "Kept"]


def test_server_that_goes_away(open_page):
    with running(ScriptedBackend([[ACCEPTED, ContentDelta("Half a"), Pause()]])) as server:
        page = open_page(server)
        ask(page)
        expect(last_reply(page).locator(".answer")).to_have_text("Half a")
    expect(problem(page)).to_contain_text("The connection ended before the reply was complete.")


def test_key_is_asked_for_and_kept_nowhere(open_page):
    with running(access=Access(key_digests=digests([KEY]))) as server:
        page = open_page(server)
        field = page.get_by_label("API key")
        field.fill("sk-wrong-0123456789")
        page.keyboard.press("Enter")
        expect(page.get_by_text("The server does not know this key.")).to_be_visible()
        field.fill(KEY)
        page.keyboard.press("Enter")
        expect(page.locator("#model-name")).to_have_text("tiny")
        ask(page)
        expect(last_reply(page).locator(".answer")).to_have_text("Hello world")
        assert server.backend.clients == ["key 1"]
        kept = page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]")
        assert kept == [0, 0, ""]
        reload(page)
        expect(field).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system(server, open_page, scheme):
    page = open_page(server, color_scheme=scheme)
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")


def test_phone_and_keyboard(server, backend, open_page):
    backend.play(said("```\n" + "x" * 500 + "\n```\n" + "y" * 500))
    page = open_page(server, viewport={"width": 390, "height": 700})
    message = page.get_by_label("Message", exact=True)
    expect(message).to_be_focused()
    page.keyboard.type("One")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("Two")
    expect(message).to_have_value("One\nTwo")
    page.keyboard.press("Enter")
    expect(last_reply(page).locator("pre")).to_be_visible()
    assert backend.request.messages[-1].text == "One\nTwo"
    expect(message).to_have_value("")
    page.get_by_role("button", name="Settings").click()
    page.evaluate("showNotice('Word '.repeat(50))")
    sizes = "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    assert page.evaluate(sizes) == [390, 700]
    assert page.locator("main").evaluate("node => node.scrollWidth <= node.clientWidth")


def test_one_of_several_models(open_page):
    other = replace(MODEL, id="other", name="Other", context=100)
    with running(ScriptedBackend(served=(MODEL, other))) as server:
        page = open_page(server)
        page.get_by_label("Model", exact=True).select_option("other")
        expect(page.get_by_text("0 of 100 tokens of context")).to_be_visible()
        ask(page)
        expect(last_reply(page).locator(".answer")).to_have_text("Hello world")
        assert server.backend.request.model == "other"


def first_of(held, page):
    """Return the first request that was held back; the browser tells of it before it is."""
    while not held:
        page.wait_for_timeout(10)
    return held.pop(0)


def test_model_chosen_while_another_one_loads(open_page):
    other = replace(MODEL, id="other", name="Other", context=100)
    with running(ScriptedBackend(served=(MODEL, other))) as server:
        page = open_page(server)
        choice = page.get_by_label("Model", exact=True)
        choice.select_option("other")
        expect(page.get_by_text("0 of 100 tokens of context")).to_be_visible()
        held = []
        page.route(f"**/props?model={MODEL.id}", lambda route: held.append(route))
        with page.expect_request("**/props*"):
            choice.select_option("tiny")
        choice.select_option("other")
        # Its context is 0 until the server has answered.
        while page.evaluate("[model.id, model.context]") != ["other", 100]:
            page.wait_for_timeout(10)
        with page.expect_event("requestfinished", lambda one: one.url.endswith(MODEL.id)):
            first_of(held, page).continue_()
        page.evaluate("new Promise((done) => setTimeout(done, 100))")
        assert page.evaluate("[model.id, model.context]") == ["other", 100]


def test_failure_of_a_model_that_is_no_longer_chosen_is_not_shown(open_page):
    other = replace(MODEL, id="other", name="Other", context=100)
    with running(ScriptedBackend(served=(MODEL, other))) as server:
        page = open_page(server)
        choice = page.get_by_label("Model", exact=True)
        expect(page.get_by_text("0 of 4,096 tokens of context")).to_be_visible()
        held = []
        page.route("**/props?model=other", lambda route: held.append(route))
        with page.expect_request("**/props*"):
            choice.select_option("other")
        choice.select_option("tiny")
        expect(page.get_by_text("0 of 4,096 tokens of context")).to_be_visible()
        with page.expect_event("requestfailed", lambda one: one.url.endswith("other")):
            first_of(held, page).abort()
        page.evaluate("new Promise((done) => setTimeout(done, 100))")
        expect(page.locator("#model-name")).to_be_hidden()
        # That of the chosen one is, until a retry.
        with page.expect_request("**/props*"):
            choice.select_option("other")
        first_of(held, page).abort()
        expect(page.locator("#model-name")).to_contain_text("The server does not answer.")
        page.unroute("**/props?model=other")
        page.locator("#model-name").get_by_role("button").click()
        expect(page.get_by_text("0 of 100 tokens of context")).to_be_visible()
        expect(page.locator("#model-name")).to_be_hidden()


def test_model_has_the_id_that_requests_name(server, open_page):
    page = open_page(server)
    expect(page.locator("#model-name")).to_have_text("tiny")
    expect(page.locator("#model-name")).to_have_attribute("title", "Tiny Model")
    expect(page).to_have_title("tiny · akunu")


@pytest.mark.parametrize(
    ("heeds", "words"),
    [
        ({"thinking"}, ["Off", "On"]),
        ({"effort"}, ["Low effort", "Medium effort", "High effort"]),
        ({"thinking", "effort"}, ["Off", "Low effort", "Medium effort", "High effort"]),
        (set(), []),
    ],
)
def test_thinking_has_the_switches_of_the_template(server, backend, open_page, heeds, words):
    backend.served = [replace(MODEL, heeds=frozenset(heeds))]
    page = open_page(server)
    page.get_by_role("button", name="Settings").click()
    field = page.get_by_label("Thinking", exact=True)
    if not words:
        expect(page.get_by_label("Temperature", exact=True)).to_be_visible()
        expect(field).to_be_hidden()
        return
    expect(field.locator("option")).to_have_text(["As the model does by default", *words])
    ask(page)
    expect(last_reply(page).locator(".answer")).to_have_text("Hello world")
    config = backend.request.config
    assert (config.thinking, config.effort) == (None, None)
    field.select_option(words[0])
    ask(page)
    expect(page.get_by_role("article", name="Reply")).to_have_count(2)
    expect(last_reply(page).locator(".answer")).to_have_text("Hello world")
    config = backend.request.config
    expected = (False, None) if words[0] == "Off" else (None, "low")
    assert (config.thinking, config.effort) == expected


def test_a_reply_that_repeats_itself_is_ended_unless_settings_say_otherwise(
    server, backend, open_page
):
    backend.play([ACCEPTED, ContentDelta("Again"), Finished("loop", USAGE)])
    page = open_page(server)
    ask(page)
    expect(last_reply(page)).to_contain_text("Ended: it repeated itself.")
    assert backend.request.config.stop_loops
    page.get_by_role("button", name="Settings").click()
    page.get_by_text("More options").click()
    field = page.get_by_label("Stop loops")
    expect(field.locator("option")).to_have_text(["Default: on", "on", "off"])
    field.select_option("off")
    ask(page)
    expect(page.get_by_role("article", name="Reply")).to_have_count(2)
    expect(last_reply(page)).to_contain_text("Ended: it repeated itself.")
    assert not backend.request.config.stop_loops


def test_thinking_of_a_model_is_known_once_it_was_loaded(server, backend, open_page):
    backend.served = [replace(MODEL, loaded=False)]
    page = open_page(server)
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_text("0 of 4,096 tokens of context")).to_be_visible()
    expect(page.get_by_label("Thinking", exact=True)).to_be_hidden()
    backend.served = [replace(MODEL, heeds=frozenset({"thinking"}))]
    ask(page)
    expect(page.get_by_label("Thinking", exact=True)).to_be_visible()


def test_reply_of_an_engine(default_model, open_page):
    with Engine.load(default_model) as engine:
        worker = Worker(engine, parallel=1, places=1, cache=PrefixCache(1 << 26))
        worker.start()
        # No measured time decides whether anything is drafted.
        defaults = GenerationConfig(draft_budget="always")
        with running(EngineBackend(worker), defaults=defaults) as server:
            page = open_page(server)
            question = "Repeat this function:\n\ndef add(first, second):\n    return first + second"
            ask(page, question)
            reply = last_reply(page)
            expect(reply.locator(".figures")).to_contain_text("tokens/s")
            body = {"messages": [{"role": "user", "content": question}]}
            expected = server.post("/v1/chat/completions", body).json()["choices"][0]["message"]
            sent = page.evaluate("exchanges[0].messages[1].content")
            assert sent == expected["content"]
            assert "def add(first, second)" in sent
            page.get_by_role("button", name="Sources").click()
            expect(reply.locator("[data-tint]")).not_to_have_count(0)
            figures = re.compile(r"[\d.]+ tokens/s · \d+ % drafted")
            expect(reply.locator(".figures")).to_have_text(figures)
        worker.close()
