"""What llguidance says of a constraint, as one line in akunu's words."""

import re

_DEAD_END = (
    "no token of the model's vocabulary may come next; check whether the form can end, and whether "
    "the model can write its characters"
)

_TOO_COMPLEX = re.compile(r"too many|too large|too deeply|max is|limit|fuel", re.IGNORECASE)

_ADVICE = re.compile(r"; [^;)]*(?=[;)]|$)")
"""What llguidance tells its programmers, behind the reason."""

_IN_EXPRESSION = re.compile(
    r"regex parse error:\n {4}(?P<shown>[^\n]*)\n {4}(?P<before> *)(?P<marks>\^+)[^\n]*\n"
    r"error: (?P<what>[^\n]*)"
)
"""An expression, marks under a part of it, and what is wrong there."""

_IN_GRAMMAR = re.compile(r"(?:at )?(?P<line>\d+)\((?P<column>\d+)\): (?P<what>[^\n]*)")
"""A place in a Lark grammar; behind it the grammar is drawn with a mark."""

_INVALID = re.compile(r'invalid regex ".*" \(in regex\): |failed to compile JSON schema: ')

_IN_OTHER_WORDS = (
    (r"oneOf constraints are not supported.*", "branches of a oneOf may overlap; use anyOf"),
    (r"Unimplemented keys: \[(.*)\]", r"a grammar cannot follow \1; leave it out"),
    (r"Unknown format: (.*)", r"the format \1 is not known; leave it out, or give a pattern"),
    (
        r"Resource '(.*)' is not present in a registry.*",
        r"\1 is another document; give it in $defs",
    ),
)
"""What llguidance advises its programmers, for whoever wrote the schema."""

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
        return f"it is too complex ({_ADVICE.sub('', first)}); make it simpler"
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
        # The expression, or a schema's word, is in the message; the grammar may be akunu's.
        place = f" (line {found['line']}, character {found['column']})"
        said = what if what != found["what"] else what + place
    for pattern, words in _IN_OTHER_WORDS:
        said = re.sub(f"^{pattern}$", words, said)
    return said or "the constraint failed"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
