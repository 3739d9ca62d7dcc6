"""A page as self-contained HTML, and as Markdown with its pictures beside it."""

from importlib.resources import files

import jinja2
from markupsafe import Markup

from akunu_py.bench.tables import escape_markdown
from akunu_py.lab.pages.content import Drawn, Page, Section

PICTURES = "pictures"
"""The folder of the Markdown page's pictures."""


def html_page(page: Page) -> str:
    """Return the page with its pictures; it has no script, and texts are escaped.

    Result files are not trusted: every text goes through jinja2's escaping. matplotlib draws texts
    in pictures as outlines.
    """
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    source = (files("akunu_py.lab.pages") / "page.html.j2").read_text(encoding="utf-8")
    return environment.from_string(source).render(page=page, svg=_inline)


def _inline(picture: Drawn) -> Markup:
    text = picture.svg.decode("utf-8")
    # A declaration of XML and a document type are not part of HTML.
    return Markup(text[text.index("<svg") :])  # noqa: S704 - drawn here, see `html_page`


def markdown_page(page: Page) -> str:
    """Return the page for GitHub's Markdown; pictures are `pictures/NAME.svg`."""
    lines = ["# Measurements", ""]
    if page.warnings:
        lines += ["**What to know first**", ""]
        lines += [
            f"- [{escape_markdown(section.heading)}](#{section.anchor}): {escape_markdown(warning)}"
            for section, warning in page.warnings
        ]
        lines.append("")
    for section in page.sections:
        lines += _markdown_section(section)
    return "\n".join(lines)


def _markdown_section(section: Section) -> list[str]:
    lines = [
        f'<a id="{section.anchor}"></a>',
        "",
        f"## {escape_markdown(section.heading)}",
        "",
        # An indented line is code, whatever its text.
        f"    {' '.join(section.source.command.split())}",
        "",
        *(f"- {escape_markdown(name)}: {escape_markdown(value)}" for name, value in section.facts),
        "",
    ]
    for table in section.tables:
        lines += [table.markdown()]
    for picture in section.pictures:
        title = escape_markdown(picture.title)
        lines += [f"![{title}]({PICTURES}/{picture.file}.svg)", ""]
        lines += [f"{title}. {escape_markdown(picture.caption)}", ""]
    if section.left_out:
        lines += ["Not drawn:", ""]
        lines += [
            f"- {escape_markdown(one.title)}: {escape_markdown(one.reason)}"
            for one in section.left_out
        ]
        lines.append("")
    return lines
