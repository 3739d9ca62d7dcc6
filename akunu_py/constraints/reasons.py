"""What llguidance says of a constraint, as one line in akunu's words."""

import re

_DEAD_END = (
    "no token of the model's vocabulary may come next; check whether the form can end, and whether "
    "the model can write its characters"
)

_TOO_COMPLEX = re.compile(r"too many|too large|too deeply|max is|limit|fuel", re.IGNORECASE)

_IN_EXPRESSION = re.compile(
    r"regex parse error:\n {4}(?P<shown>[^\n]*)\n {4}(?P<before> *)(?P<marks>\^+)[^\n]*\n"
    r"error: (?P<what>[^\n]*)"
)
"""An expression, marks under a part of it, and what is wrong there."""

_IN_GRAMMAR = re.compile(r"(?:at )?(?P<line>\d+)\((?P<column>\d+)\): (?P<what>[^\n]*)")
"""A place in a Lark grammar; behind it the grammar is drawn with a mark."""

_INVALID = re.compile(r'invalid regex ".*" \(in regex\): ')

_MOST_SHOWN = 60
"""Characters of an expression in a message."""


def reason_of(said: str) -> str:
    """Return what llguidance says in an error, without its drawings of the place."""
    said = said.strip().partition("\n<")[0]
    # llguidance's own words for a limit of its numbers, such as 65,535 symbols of a grammar.
    if said.startswith("panic"):
        return "it is too large to compile; make it smaller, or offer fewer tools"
    if said.startswith("NoExtension"):
        return _DEAD_END
    if _TOO_COMPLEX.search(first := said.partition("\n")[0]):
        # Behind a semicolon is advice to programmers of llguidance.
        return f"it is too complex ({first.partition(';')[0]}); make it simpler"
    if found := _IN_EXPRESSION.search(said):
        start = len(found["before"])
        part = found["shown"][start : start + len(found["marks"])]
        # On the way into a Lark grammar each / got a backslash.
        shown, before = (
            text.replace("\\/", "/") for text in (found["shown"], found["shown"][:start])
        )
        return f"{found['what']}: {_short(part)} at character {len(before) + 1} of {_short(shown)}"
    if found := _IN_GRAMMAR.match(said):
        what = _INVALID.sub("", found["what"])
        # The expression is in the message then, and its grammar may be akunu's.
        place = f" (line {found['line']}, character {found['column']})"
        return what if what != found["what"] else what + place
    return said or "the constraint failed"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
