"""The page at `/` as it is served: one file, nothing from elsewhere, nothing that is not allowed."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from scripted_server import running

import akunu_py.server.page
from akunu_py.server.page import rendering
from akunu_py.server.security import Access, digests
from akunu_py.system.limited_child import LimitedChild

FOLDER = Path(akunu_py.server.page.__file__).parent
KEY = "sk-test-0123456789abcdef"


class Elements(HTMLParser):
    """Elements of a page with their attributes, and the text of styles and scripts."""

    def __init__(self, html):
        super().__init__()
        self.found, self.texts, self.inside = [], {"style": [], "script": []}, None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.inside = tag if tag in self.texts else None

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside:
            self.texts[self.inside].append(data)


def policy_of(response):
    directives = response.headers["content-security-policy"].split("; ")
    return {name: rest for name, _, rest in (one.partition(" ") for one in directives)}


def test_policy_allows_the_parts_of_the_page_alone(server):
    response = server.get("/")
    assert response.status_code == 200
    assert len(response.content) < 120_000
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = policy_of(response)
    for kind, texts in Elements(response.text).texts.items():
        digests_ = [base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in texts]
        assert policy[f"{kind}-src"].split() == [f"'sha256-{one.decode()}'" for one in digests_]
        assert texts
        assert all(len(text) > 1000 for text in texts)
    for name in ("default-src", "base-uri", "form-action", "frame-ancestors"):
        assert policy[name] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in response.headers["content-security-policy"]


def test_page_takes_nothing_from_elsewhere(server):
    html = server.get("/").text
    # The names of two formats, which nothing fetches; icons are shapes of the page itself.
    addresses = set(re.findall(r"\w+://[^\s'\"]+", html)) - {
        "http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML",
    }  # fmt: skip
    assert not addresses
    assert not re.search(r"@import|url\(|\bimport\b\s*[('\"{]", html)
    for tag, attributes in Elements(html).found:
        assert not attributes.keys() & {"src", "srcset", "action", "style"}, tag
        assert not any(name.startswith("on") for name in attributes), tag
        assert attributes.get("href", "data:").startswith(("data:", "#"))


def test_scripts_make_no_markup_of_text_and_keep_nothing_but_chats(server):
    scripts = Elements(server.get("/").text).texts["script"]
    assert scripts
    for script in scripts:
        code = re.sub(r"/\*.*?\*/|//.*", "", script, flags=re.DOTALL)
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"
            r"|DOMParser|createContextualFragment|localStorage|sessionStorage|\.cookie",
            code,
        )
    assert sum("indexedDB" in script for script in scripts) == 1


def test_page_needs_no_key_and_its_requests_do():
    with running(access=Access(key_digests=digests([KEY]))) as server:
        assert server.get("/").status_code == 200
        assert server.get("/v1/models").status_code == 401
        assert server.get("/props").status_code == 401
        headers = {"authorization": f"Bearer {KEY}"}
        assert server.get("/props", headers=headers).status_code == 200


def test_markdown_is_read_for_those_with_a_key_within_limits():
    with running(access=Access(key_digests=digests([KEY]))) as server:
        assert server.post("/render", {"texts": ["a"]}).status_code == 401
        headers = {"authorization": f"Bearer {KEY}"}
        answer = server.client.post("/render", json={"texts": ["a", ""]}, headers=headers).json()
        assert answer["texts"] == [[[0, ["p", {"dir": "ltr"}, "a"]]], []]
        refusal = server.client.post("/render", json={"texts": ["a" * 1_000_001]}, headers=headers)
        assert refusal.status_code == 400
        assert "up to 1,000,000 characters" in refusal.json()["error"]["message"]


def test_markdown_that_takes_too_long_is_not_read(server, monkeypatch):
    child = LimitedChild(rendering._SCRIPT, 0.05, purpose="read Markdown")
    monkeypatch.setattr(rendering, "_CHILD", child)
    answer = server.client.post("/render", json={"texts": ["*a* " * 200_000]}).json()
    child.close()
    assert answer == {"texts": None, "seconds": rendering._MOST_SECONDS}


def test_page_is_not_for_other_hosts(server):
    response = server.get("/", headers={"host": "evil.example"})
    assert response.status_code == 403
    assert "html" not in response.headers["content-type"]


def colors(dark):
    """The colours of the style by name; each is given for light and for dark pages."""
    style = (FOLDER / "page.css").read_text()
    found = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", style)
    assert len(found) > 20
    assert len(re.findall(r"#[0-9a-f]{6}\b", style)) == 2 * len(found)
    return {name: values[dark] for name, *values in found}


def contrast(one, other):
    """WCAG 2.2: from 1 to 21."""

    def luminance(color):
        channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (
            value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
            for value in channels
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


TEXTS = [
    *(("ink", ground) for ground in ("paper", "raised", "hover", "code", *(f"tint-{n}" for n in range(1, 7)))),
    *(("soft", ground) for ground in ("paper", "raised", "hover", "code")),
    *((kind, ground) for kind in ("comment", "string", "number", "keyword")
      for ground in ("code", "paper")),
    ("error", "error-paper"),
    ("on-accent", "accent"),
]  # fmt: skip
SHAPES = [
    ("edge", "paper"),
    ("accent", "paper"),
    *((part, "paper") for part in ("cached", "prefilled", "generated")),
    *((f"line-{n}", f"tint-{n}") for n in range(1, 7)),
]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_contrast_is_enough(dark):
    values = colors(dark)
    poor = {
        pair: round(contrast(values[pair[0]], values[pair[1]]), 2)
        for pairs, least in ((TEXTS, 4.5), (SHAPES, 3))
        for pair in pairs
        if contrast(values[pair[0]], values[pair[1]]) < least
    }
    assert not poor
