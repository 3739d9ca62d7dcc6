"""Prompts made by rules, in the proportions of everyday use.

Their text is the Python standard library's (docstrings, functions, and the language reference in
`pydoc_data`; PSF-2.0) and the word lists below, which were written for akunu. Every prompt comes
from one source: a file, a section of the reference, or a word of a list. Sources are split into
training and held-out by a hash of their name, so no source is on both sides.
"""

import ast
import functools
import random
import re
import sysconfig
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from default_model.corpus import name_share, source_files

HELD_OUT_SHARE = 0.12
_MOST_PARAGRAPH, _LEAST_PARAGRAPH = 700, 160
_MOST_CODE = 600

_TOPICS = """
photosynthesis|volcanoes|earthquakes|rainbows|glaciers|coral reefs|the water cycle|black holes|the moon
the seasons|gravity|magnets|batteries|vaccines|antibiotics|the immune system|sleep|dreams|memory|the heart
digestion|vitamins|allergies|inflation|taxes|insurance|mortgages|the stock market|unemployment|trade
elections|constitutions|courts of law|human rights|the Roman Empire|the Industrial Revolution
the Silk Road|the French Revolution|medieval castles|Viking ships|ancient Egypt|pyramids|the compass
bread baking|cheese|coffee|tea|chocolate|spices|fermentation|composting|beekeeping|gardening|pruning
chess|football|swimming|cycling|yoga|marathons|mountaineering|sailing|knots|origami|pottery|knitting
watercolours|photography|film editing|the violin|jazz|opera|rhythm|poetry|novels|theatre|myths|fables
maps|time zones|calendars|alphabets|translation|accents|dictionaries|libraries|newspapers|the telephone
radio|television|the internet|search engines|passwords|encryption|spam|computer viruses|backups
databases|spreadsheets|compilers|operating systems|algorithms|sorting|version control|testing software
robots|machine learning|satellites|rockets|telescopes|microscopes|lasers|solar panels|wind turbines
nuclear power|electric cars|trains|bridges|tunnels|elevators|concrete|glass|steel|paper|plastic|recycling
forests|deserts|wetlands|rivers|oceans|whales|octopuses|owls|bats|ants|butterflies|wolves|horses|cats
dogs|dinosaurs|fossils|evolution|genes|cells|atoms|molecules|acids|fire|ice|sound|light|colour|friction
probability|fractions|percentages|prime numbers|triangles|statistics|averages|graphs|logic|proofs
friendship|honesty|courage|patience|stress|habits|procrastination|public speaking|negotiation|teamwork
leadership|feedback|job interviews|saving money|moving house|cooking for guests|packing a suitcase
camping|public transport|first aid|house plants|cleaning windows|painting a wall|repairing a bicycle
"""
_ABOUT = (
    "What is {}?",
    "What are the most important facts about {}?",
    "Explain {} in simple words.",
    "Explain {} to a {reader}.",
    "How does one begin to learn about {}?",
    "Why should one know about {}? Answer in one paragraph.",
    "Give me {number} tips about {}.",
    "List {number} facts about {}.",
    "List {number} common mistakes about {} and how to avoid them.",
    "Write a short introduction to {} for a {reader}.",
    "Write an email to a {reader} about {}.",
    "Write a quiz with {number} questions about {}, with the answers.",
    "What are the advantages and disadvantages of {}?",
    "Describe a typical day of somebody who works with {}.",
    "Compare {} with {other}.",
    "Tell me something about {} and {other}.",
    "Write a poem about {}.",
    "Write a dialogue between a {reader} and a teacher about {}.",
    "Write a plan for a lesson of an hour about {}.",
    "Make a table of terms about {} with their meanings.",
    "Write a newspaper article about {}.",
    "What questions should a {reader} ask about {}?",
)
_READERS = (
    "child", "student", "grandmother", "new colleague", "manager", "tourist", "farmer", "nurse",
    "beginner", "engineer", "neighbour", "customer",
)  # fmt: skip
_HEROES = """
fisherman|retired teacher|young baker|night watchman|clockmaker|lost astronaut|postwoman|old wolf|talking cat
shy dragon|piano tuner|lighthouse cat|librarian|taxi driver|gardener|little girl|blind musician|robot
smuggler|doctor|ghost|king without a country|mapmaker|twin sisters|apprentice|detective|snail|sailor
"""
_PLOTS = (
    "finds a letter that was never sent", "has to cross a river in flood", "makes a wrong promise",
    "learns to tell the truth", "wakes up in another century", "gets a strange new neighbour",
    "loses something precious", "hears a voice in the wall", "wins a race by accident",
    "keeps a secret too long", "meets an old enemy", "builds something nobody wants",
    "must choose between two friends", "discovers a door behind the stove",
)  # fmt: skip
_PLACES = (
    "in a mountain village", "on a small island", "in a big city", "on a night train", "in winter",
    "in a house full of clocks", "under the sea", "at the edge of a desert", "in a hospital",
    "in a market", "on the last day of summer", "in a library",
)  # fmt: skip
_STORIES = (
    "Write a short story about a {hero} who {plot} {place}.",
    "Tell me a story: a {hero} {plot} {place}.",
    "Write the first page of a novel in which a {hero} {plot} {place}.",
    "Write a fairy tale about a {hero} who {plot}. End with a moral.",
    "Write a scene for the theatre: a {hero} {plot} {place}.",
    "Write a diary entry of a {hero} who {plot} {place}.",
    "Continue this story: There once was a {hero} who {plot} {place}.",
)
_TASKS = """
reverses the words of a sentence|finds the largest number in a list|counts the vowels in a string
checks whether a number is prime|merges two sorted lists|removes duplicates from a list
computes the nth Fibonacci number|converts temperatures|reads a CSV file and sums a column
groups words by their first letter|flattens a nested list|finds the median|checks for balanced brackets
converts Roman numerals|counts words in a file|rotates a matrix|finds common elements of two lists
formats a duration in hours and minutes|validates an email address|generates a random password
sorts dictionaries by a key|transposes a table|finds anagrams|computes a running average
parses a date|writes a dictionary to a JSON file|retries a function that fails|caches results of a function
splits a list into chunks|checks whether a string is a palindrome|finds the shortest path in a grid
draws a triangle of stars|simulates a dice game|counts the lines of a file|renames files in a folder
"""
_PROGRAMS = (
    "Write a Python function that {}.",
    "Write a function in JavaScript that {}.",
    "Write a Python program that {}, with a short explanation.",
    "How do I write code that {}? Show an example.",
    "Write a class in Python whose method {}.",
    "Write unit tests for a Python function that {}.",
)
_ON_TEXT = (
    "Rewrite the following text in simpler words.\n\n{}",
    "Summarise this text in two sentences.\n\n{}",
    "What is the following text about?\n\n{}",
    "Make a list of the main points of this text.\n\n{}",
    "Explain this to a beginner:\n\n{}",
    "Write three questions about this text and answer them.\n\n{}",
    "Correct the following text where necessary.\n\n{}",
    "Rewrite the text in a friendly tone.\n\n{}",
)
_ON_CODE = (
    "What does this function do?\n\n```python\n{}\n```",
    "Explain this code step by step.\n\n```python\n{}\n```",
    "Write a docstring for this function.\n\n```python\n{}\n```",
    "Add comments to this code.\n\n```python\n{}\n```",
    "Rewrite this function with better names.\n\n```python\n{}\n```",
    "Write a test for this function.\n\n```python\n{}\n```",
    "Is there a mistake in this function?\n\n```python\n{}\n```",
)
_ON_SUMMARY = (
    "Write a Python function for this description: {}",
    "Write a Python function `{name}`. Its docstring is: {}",
    "How would you do this in Python? {}",
)


@dataclass(frozen=True, slots=True)
class PromptText:
    """The text of a user's turn, and the kind of reply it asks for."""

    text: str
    kind: str


def prompts(*, held_out: bool, seed: int = 0) -> Iterator[PromptText]:
    """Yield prompts of the training sources, or of the held-out ones, without end."""
    rng = random.Random(f"{seed}:{held_out}")
    lists = _Lists(held_out=held_out)
    paragraphs, functions, summaries = _library_texts(held_out=held_out)

    def about() -> PromptText:
        form = rng.choice(_ABOUT)
        text = form.format(
            rng.choice(lists.topics),
            other=rng.choice(lists.topics),
            reader=rng.choice(_READERS),
            number=rng.choice(("three", "four", "five", "seven", "ten")),
        )
        return PromptText(text, "list" if "number" in form else "explanation")

    def story() -> PromptText:
        hero, plot, place = (rng.choice(words) for words in (lists.heroes, _PLOTS, _PLACES))
        return PromptText(rng.choice(_STORIES).format(hero=hero, plot=plot, place=place), "story")

    def program() -> PromptText:
        return PromptText(rng.choice(_PROGRAMS).format(rng.choice(lists.tasks)), "code")

    def on_text() -> PromptText:
        return PromptText(rng.choice(_ON_TEXT).format(rng.choice(paragraphs)), "text")

    def on_code() -> PromptText:
        return PromptText(rng.choice(_ON_CODE).format(rng.choice(functions)), "code")

    def on_summary() -> PromptText:
        name, summary = rng.choice(summaries)
        return PromptText(rng.choice(_ON_SUMMARY).format(summary, name=name), "code")

    kinds = (about, story, program, on_text, on_code, on_summary)
    while True:
        yield rng.choices(kinds, weights=(40, 18, 12, 14, 9, 7))[0]()


class _Lists:
    """The words of one side."""

    def __init__(self, *, held_out: bool) -> None:
        def side(words: str) -> list[str]:
            items = re.split(r"[|\n]", words.strip())
            return [item for item in items if _is_held_out(item) == held_out]

        self.topics, self.heroes, self.tasks = side(_TOPICS), side(_HEROES), side(_TASKS)


def _is_held_out(source: str) -> bool:
    return name_share(f"head:{source}") < HELD_OUT_SHARE


@functools.cache
def _library_texts(*, held_out: bool) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    """Return paragraphs, functions, and (name, first sentence) of functions, of one side."""
    paragraphs, functions, summaries = [], [], []
    for title, text in _reference().items():
        if _is_held_out(title) == held_out:
            paragraphs += _paragraphs(text)
    root = Path(sysconfig.get_paths()["stdlib"])
    for name, source in source_files(root):
        if _is_held_out(name) != held_out or {"test", "tests", "idlelib"} & set(Path(name).parts):
            continue
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            continue
        lines = source.split("\n")
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                continue
            docstring = ast.get_docstring(node) or ""
            paragraphs += _paragraphs(docstring)
            if isinstance(node, ast.FunctionDef):
                code = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
                if 120 < len(code) <= _MOST_CODE and "```" not in code:
                    functions.append(code.rstrip())
                first = docstring.split("\n\n")[0].replace("\n", " ").strip()
                if 30 < len(first) < 200 and not node.name.startswith("_"):
                    summaries.append((node.name, first))
    return paragraphs, functions, summaries


def _reference() -> dict[str, str]:
    """Return the sections of the language reference by title."""
    from pydoc_data.topics import topics

    return topics


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs of prose in a text, each on one line."""
    found = []
    for piece in re.split(r"\n\s*\n", text):
        line = " ".join(piece.split())
        letters = sum(character.isalpha() or character == " " for character in line)
        if (
            _LEAST_PARAGRAPH <= len(line) <= _MOST_PARAGRAPH
            and letters > 0.9 * len(line)
            and line.endswith(".")
        ):
            found.append(line)
    return found
