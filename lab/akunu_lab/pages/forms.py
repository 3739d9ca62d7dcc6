"""A page as self-contained HTML, and as Markdown with its pictures beside it."""

from base64 import b64encode
from importlib.resources import files

import jinja2
from markdown_it import MarkdownIt
from markupsafe import Markup

from akunu_lab.pages.content import DrawnPicture, Page, Section
from akunu_lab.study.markdown import escape, markdown_of

PICTURES = "pictures"
"""The folder of the Markdown page's pictures."""


def html_page(page: Page) -> str:
    """Return the page with its pictures; it has no script, and texts are escaped.

    Result files may come from anywhere: every text goes through jinja2's escaping. A picture is an
    image, so that its ids and rules are its own, and nothing in it can run.
    """
    return _rendered("page.html.j2", page=page, data=_data)


def html_of_markdown(title: str, text: str) -> str:
    """Return a Markdown page with tables as HTML of the same look; HTML in it stays text."""
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    body = body.replace("<table>", '<div class="scroll"><table>').replace(
        "</table>", "</table></div>"
    )
    return _rendered("text.html.j2", title=title, body=Markup(body))  # noqa: S704 - escaped above


def _rendered(name: str, **values: object) -> str:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    folder = files("akunu_lab.pages")
    style = Markup((folder / "style.css").read_text(encoding="utf-8"))  # noqa: S704 - our own
    source = (folder / name).read_text(encoding="utf-8")
    return environment.from_string(source).render(style=style, **values)


def _data(drawn: DrawnPicture) -> str:
    return f"data:image/svg+xml;base64,{b64encode(drawn.svg).decode('ascii')}"


def markdown_page(page: Page) -> str:
    """Return the page for GitHub's Markdown; pictures are `pictures/NAME.svg`."""
    lines = [f"# {escape(page.title)}", ""]
    if page.warnings:
        lines += ["**What to know first**", ""]
        lines += [
            f"- {_in_section(page, section)}{escape(warning)}" for section, warning in page.warnings
        ]
        lines.append("")
    for section in page.sections:
        lines += _markdown_section(section)
    return "\n".join(lines)


def _in_section(page: Page, section: Section) -> str:
    if len(page.sections) == 1:
        return ""
    return f"[{escape(section.heading)}](#{section.anchor}): "


def _markdown_section(section: Section) -> list[str]:
    lines = [
        f'<a id="{section.anchor}"></a>',
        "",
        f"## {escape(section.heading)}",
        "",
        # An indented line is code, whatever its text.
        f"    {' '.join(section.kept.command.split())}",
        "",
        *(f"- {escape(name)}: {escape(value)}" for name, value in section.facts),
        "",
    ]
    for table in section.tables:
        lines += [markdown_of(table)]
    for drawn in section.pictures:
        title = escape(drawn.picture.title)
        lines += [f"![{title}]({PICTURES}/{drawn.file}.svg)", ""]
        lines += [f"{title}. {escape(drawn.picture.caption)}", ""]
    if section.left_out:
        lines += ["Not drawn:", ""]
        lines += [f"- {escape(one.title)}: {escape(one.reason)}" for one in section.left_out]
        lines.append("")
    return lines
