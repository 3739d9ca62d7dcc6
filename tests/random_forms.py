"""Random schemas, expressions and grammars, small enough for replies to end."""

import random
import re

_KEYS = ("name", "age", "größe", "名前", "a b", 'quo"te', "x-1", "ключ", "émoji 😀", "back\\slash")
_WORDS = ("red", "green", "blau", "жёлтый", "青", "a/b", "two words", "😀")
_PATTERNS = ("^[a-z]{1,5}$", "^[A-Z][a-z]{0,4}$", "^\\d{2}-\\d{2}$", "^(yes|no)$", "^#[0-9a-f]{3}$")


def schema(rng):
    """A schema of an object, with definitions."""
    definitions = {
        "leaf": _leaf(rng),
        "pair": {"type": "array", "items": _leaf(rng), "minItems": 1, "maxItems": 2},
    }
    return {"$defs": definitions, **_object(rng, 2)}


def _object(rng, depth):
    names = rng.sample(_KEYS, rng.randint(1, 3))
    required = [name for name in names if rng.random() < 0.7]
    return {
        "type": "object",
        "properties": {name: _value(rng, depth) for name in names},
        "required": required,
        "additionalProperties": False,
    }


def _value(rng, depth):
    kinds = ["leaf", "leaf", "ref"] + ["object", "array", "union"] * (depth > 0)
    match rng.choice(kinds):
        case "object":
            return _object(rng, depth - 1)
        case "array":
            return {
                "type": "array",
                "items": _value(rng, depth - 1),
                "minItems": rng.randint(0, 1),
                "maxItems": rng.randint(1, 2),
            }
        case "union":
            return {"anyOf": [_value(rng, depth - 1), {"type": "null"}, _leaf(rng)]}
        case "ref":
            return {"$ref": f"#/$defs/{rng.choice(('leaf', 'pair'))}"}
    return _leaf(rng)


def _leaf(rng):
    low = rng.randint(-50, 50)
    return rng.choice([
        {"type": "string", "maxLength": rng.randint(1, 8)},
        {"type": "string", "minLength": 2, "maxLength": 5},
        {"type": "string", "pattern": rng.choice(_PATTERNS)},
        {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 300)},
        {"type": "number", "exclusiveMinimum": low, "maximum": low + 9.5},
        {"enum": [*rng.sample(_WORDS, 3), rng.randint(0, 9), None]},
        {"const": rng.choice([True, "fixed", 7, {"k": [1, "ü"]}])},
        {"type": ["boolean", "null"]},
        {"type": "string", "format": rng.choice(("date", "ipv4", "uuid"))},
    ])  # fmt: skip


def expression(rng, depth=2):
    """A regular expression that Python and llguidance read alike, with bounded repeats."""
    parts = [_piece(rng, depth) for _ in range(rng.randint(1, 3))]
    return "".join(parts)


def _piece(rng, depth):
    atoms = [
        "[a-z]",
        "[A-F0-9]",
        "[^\\s,;]",
        "x",
        "ü",
        "\\.",
        "\\d",
        "[äöü]",
        "-",
        "日",
        "\\w",
        '"',
        "/",
    ]
    atom = rng.choice(atoms)
    if depth and rng.random() < 0.4:
        atom = f"(?:{'|'.join(expression(rng, depth - 1) for _ in range(rng.randint(1, 3)))})"
    return atom + rng.choice(["", "", "?", "{2}", "{1,4}", "{0,3}"])


def grammar(rng):
    """A Lark grammar without recursion, and the expression of its language."""
    names = [f"rule{index}" for index in range(rng.randint(2, 5))]
    languages: dict[str, str] = {}
    lines = []
    for place, name in enumerate(names):
        sides = []
        for _ in range(rng.randint(1, 3)):
            terms, meaning = [], ""
            for _ in range(rng.randint(1, 3)):
                term, language = _term(rng, names[:place], languages)
                terms.append(term)
                meaning += language
            sides.append((" ".join(terms), meaning))
        lines.append(f"{name}: {' | '.join(side for side, _ in sides)}")
        languages[name] = f"(?:{'|'.join(meaning for _, meaning in sides)})"
    lines.append(f"start: {names[-1]}")
    return "\n".join(reversed(lines)), languages[names[-1]]


def _term(rng, known, languages):
    if known and rng.random() < 0.5:
        name = rng.choice(known)
        suffix = rng.choice(["", "", "?"])
        return name + suffix, languages[name] + suffix
    if rng.random() < 0.5:
        text = rng.choice(["a", "if ", "=", "(", ")", "end", "ß", "+", "[", ";\\n"])
        return f'"{text}"', re.escape(text.replace("\\n", "\n"))
    pattern = rng.choice(["[a-z]{1,3}", "[0-9]{1,2}", "(?:ab|cd)", "[^a-z\\s]"])
    return f"/{pattern}/", pattern


def seeded(kind, seed):
    return random.Random(f"{kind}:{seed}")
