"""Prompts and replies made from the Python standard library, to fit and judge drafters on.

No model wrote them: a reply is source text after a known edit, what comes next in a file, a patch, or
sentences taken from documentation, so that how much of it stands in the prompt varies as it does in
use. Everything follows from the seed and the library's version.
"""

import ast
import difflib
import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

from default_model.chat_examples import conversations, functions_of
from default_model.corpus import Corpus, load_corpus
from default_model.edits import docstring_node

MAX_FILE_LINES = 260


@dataclass(frozen=True, slots=True)
class Example:
    """One reply: what the target was given and what it said. Turns of a session follow another."""

    kind: str
    session: str
    prompt: str
    reply: str


def pieces_of(text: str) -> list[str]:
    """Cut a file before each top-level statement that has a blank line before it."""
    pieces: list[str] = []
    for line in text.split("\n"):
        starts = line and not line[0].isspace() and line[0] not in "#)]}\"'"
        if pieces and not (starts and pieces[-1].endswith("\n\n")):
            pieces[-1] += line + "\n"
        else:
            pieces.append(line + "\n")
    return pieces


def edited_file(text: str, names: list[str], rng: random.Random) -> tuple[str, str]:
    """Change a file here and there; return the instruction and the result."""
    lines = text.split("\n")
    asked: list[str] = []
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        kind = rng.choice(("rename", "rename", "delete", "insert", "literal", "comment", "move"))
        place = rng.randrange(len(lines))
        line = lines[place]
        words = [w for w in _words(line) if len(w) > 3]
        if kind == "rename" and words:
            old, new = rng.choice(words), rng.choice(names)
            lines = [_replace_word(row, old, new) for row in lines]
            asked.append(f"rename {old} to {new}")
        elif kind == "delete":
            count = rng.choice((1, 1, 2, 4, 9))
            asked.append(f"delete lines {place + 1} to {place + count}")
            del lines[place : place + count]
        elif kind == "insert":
            source = rng.randrange(len(lines))
            added = lines[source : source + rng.choice((1, 2, 3))]
            lines[place:place] = [_replace_word(row, w, rng.choice(names)) for row in added
                                  for w in [next(iter(_words(row)), "x")]]  # fmt: skip
            asked.append(f"add to line {place + 1}")
        elif kind == "literal" and any(c.isdigit() for c in line):
            lines[place] = "".join(str(rng.randrange(10)) if c.isdigit() else c for c in line)
            asked.append(f"change the number in line {place + 1}")
        elif kind == "comment" and line.strip():
            indent = line[: len(line) - len(line.lstrip())]
            noted = " ".join(rng.sample(names, 3))
            lines.insert(place, f"{indent}# {noted}")
            asked.append(f"comment line {place + 1}")
        elif kind == "move":
            taken = lines[place : place + 6]
            del lines[place : place + 6]
            target = rng.randrange(len(lines) + 1)
            lines[target:target] = taken
            asked.append(f"move lines {place + 1} to {place + 6} to line {target + 1}")
    return "Please " + ", ".join(asked or ["repeat it"]) + ".", "\n".join(lines)


def _words(line: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in line).split()


def _replace_word(line: str, old: str, new: str) -> str:
    parts: list[str] = []
    word = ""
    for c in line + "\n":
        if c.isalnum() or c == "_":
            word += c
            continue
        parts += [new if word == old else word, c]
        word = ""
    return "".join(parts)[:-1]


def file_edits(text: str, names: list[str], rng: random.Random) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, prompt, reply) for a whole file edited, or shown as a patch."""
    instruction, result = edited_file(text, names, rng)
    asked = f"{instruction}\n\n```python\n{text}\n```\n"
    if rng.random() < 0.75:
        yield "edit file", asked, f"```python\n{result}\n```"
        return
    before, after = text.split("\n"), result.split("\n")
    patch = list(difflib.unified_diff(before, after, "a/file.py", "b/file.py", lineterm="", n=3))
    yield "patch", asked, "THOUGHT: the file needs a change.\n\n" + "\n".join(patch)


def file_completions(text: str, rng: random.Random) -> Iterator[tuple[str, str, str]]:
    """Yield a file to finish from its beginning, and one to write from its outline."""
    pieces = pieces_of(text)
    if len(pieces) > 2:
        cut = rng.randrange(1, len(pieces))
        yield "continue", "".join(pieces[:cut]), "".join(pieces[cut : cut + 4])
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    lines = text.split("\n")
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or len(node.body) < 3:
            continue
        head = [lines[node.lineno - 1]]
        for item in node.body:
            if isinstance(item, ast.FunctionDef):
                end = docstring_node(item)
                last = end.end_lineno if end is not None else item.body[0].lineno - 1
                head += [*lines[item.lineno - 1 : last], "        pass"]
        whole = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        if len(whole) < 9000:
            imports = [row for row in lines[:60] if row.startswith(("import ", "from "))]
            yield (
                "class",
                "Complete this class:\n```python\n" + "\n".join(imports + head) + "\n```\n",
                "```python\n" + "\n".join(imports) + "\n\n" + whole + "\n```",
            )


def prose_of(text: str) -> list[str]:
    """Return the longer paragraphs of a file's docstrings."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
                flat = " ".join(paragraph.split())
                if len(flat) > 60 and ">>>" not in flat and flat[0].isalpha():
                    found.append(flat)
    return found


def prose_examples(
    paragraphs: list[str], rng: random.Random, count: int
) -> Iterator[tuple[str, str, str]]:
    """Yield questions answered freely, from a passage, and summaries that quote."""
    for _ in range(count):
        start = rng.randrange(len(paragraphs) - 12)
        passage = paragraphs[start : start + rng.choice((4, 6, 9))]
        kind = rng.choice(("free", "free", "passage", "summary"))
        if kind == "free":
            subject = " ".join(passage[0].split()[:5])
            yield kind, f"Tell me about {subject}", "\n\n".join(passage)
            continue
        sentences = [s for p in passage for s in p.replace(". ", ".\n").split("\n")]
        chosen = sorted(rng.sample(range(len(sentences)), min(3, len(sentences))))
        said: list[str] = []
        for index in chosen:
            words = sentences[index].split()
            if len(words) > 8 and rng.random() < 0.6:
                begin = rng.randrange(len(words) // 2)
                words = words[begin : begin + rng.randrange(5, 20)]
            said.append(" ".join(words))
        if kind == "passage":
            other = rng.choice(paragraphs).split()[:12]
            said.insert(1, " ".join(other))
        asked = "Answer from these passages.\n" if kind == "passage" else "Summarize:\n"
        yield kind, asked + "\n".join(passage), ". ".join(said)


def make_examples(seed: int, share: float) -> list[Example]:
    """Make examples from about `share` of the library's files."""
    corpus: Corpus = load_corpus()
    rng = random.Random(seed)
    files = sorted(corpus.train_files, key=lambda t: hashlib.sha256(t.encode()).digest())
    # Those between them were to judge the weights on.
    files = files[::2]
    files = files[: max(20, int(len(files) * share))]
    functions = [f for text in files for f in functions_of(text)]
    names = sorted({name for f in functions for name in f.identifiers})
    found: list[Example] = []

    def add(session: str, made: Iterator[tuple[str, str, str]]) -> None:
        found.extend(Example(kind, session, ask, reply) for kind, ask, reply in made if reply)

    for number, text in enumerate(files):
        lines = text.split("\n")
        begin = rng.randrange(max(1, len(lines) - 40))
        part = "\n".join(lines[begin : begin + rng.randrange(40, MAX_FILE_LINES)])
        if rng.random() < 0.5:
            add(f"edit {number}", file_edits(part, names, rng))
        if rng.random() < 0.5:
            add(f"complete {number}", file_completions(text[:24000], rng))
    for number, function in enumerate(rng.sample(functions, min(len(functions), len(files) * 3))):
        for talk in conversations(function, names, rng):
            history = ""
            for user, assistant in talk.turns:
                history += f"user: {user}\nassistant: "
                found.append(Example("chat edit", f"chat {number}", history, assistant))
                history += assistant + "\n"
    paragraphs = [p for text in files for p in prose_of(text)]
    add("prose", prose_examples(paragraphs, rng, len(files) // 2))
    # By kind, as use comes in stretches; the order within a kind is that of the shuffle.
    rng.shuffle(found)
    return sorted(found, key=lambda example: example.kind)


def fingerprint(examples: list[Example]) -> str:
    """Return a hash of all texts."""
    whole = json.dumps([(e.kind, e.prompt, e.reply) for e in examples])
    return hashlib.sha256(whole.encode()).hexdigest()[:16]
