"""What trained models are asked in tests and recordings: conversations, whose last message is a raw prompt too."""

NEAR_TIE = 1e-3
"""Distance of two logits: rounding may decide between two that are closer, and no recorded choice is so close."""

_FUNCTION = """def read_all(paths, encoding):
    contents = []
    for path in paths:
        with open(path, encoding=encoding) as stream:
            contents.append(stream.read())
    return contents
"""
_HANDLERS = "\n".join(
    f"def handle_{verb}_{noun}(request, store):\n"
    f'    """{verb.capitalize()} one {noun}."""\n'
    f"    {noun} = store.find({noun!r}, request.number)\n"
    f"    if {noun} is None:\n"
    f'        return error(404, "no such {noun}")\n'
    f"    return {verb}(request, {noun})\n"
    for verb in ("show", "change", "remove")
    for noun in ("order", "invoice", "parcel")
)
_REPORT = " ".join(
    f"On day {day} the station measured {(day * 37) % 23 + 2} degrees at noon and "
    f"{(day * 53) % 11} millimetres of rain; the wind came from the {wind}."
    for day, wind in enumerate(("north", "west", "south-west", "east", "south") * 3, start=1)
)
_MINUTES = (
    "Minutes. Present: Ada, Grace, Edsger. The draft of the second chapter was read. Grace found three "
    "mistakes in the tables; Edsger wants shorter sentences. Ada will mend the tables until Friday. The "
    "cover was discussed again and nothing was decided. The next meeting is on the ninth, at four."
)


def _asked(text, *, system=None, before=()):
    messages = [] if system is None else [{"role": "system", "content": system}]
    for question, answer in before:
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": answer})
    return [*messages, {"role": "user", "content": text}]


SMOLLM2 = {
    # Questions.
    "who": _asked("Who are you?"),
    "planets": _asked("Name the planets of the solar system, the innermost first."),
    "kettle": _asked("Why does a kettle whistle when the water boils?"),
    "brief": _asked("How do I keep bread fresh?", system="Answer in one sentence."),
    "turns": _asked(
        "And which of them is the largest?",
        before=[("What is a prime number?", "A number with two divisors, 1 and itself."),
                ("Give me three of them.", "2, 3 and 5.")],
    ),
    "sum": _asked("A shirt costs 18 dollars and a hat costs 7 dollars less. What do both cost?"),
    # Code, and edits of it.
    "name": _asked(f"What is the name of this function?\n```python\n{_FUNCTION}```"),
    "parameter": _asked(f"Add the parameter `limit=10` to this function:\n```python\n{_FUNCTION}```"),
    "rename": _asked(f"Rename `contents` to `texts`. Answer with the code alone.\n\n{_FUNCTION}"),
    "fibonacci": _asked("def fibonacci(n):\n"),
    "query": _asked("SELECT name, COUNT(*) FROM orders\nGROUP BY name\n-- now only those above ten:\n"),
    "json": _asked('{"name": "akunu", "size": 12, "tags": ["a", "b"]}\nWrite this as YAML.'),
    "tabs": _asked('int main(void)\n{\n\tfor (int i = 0; i < 3; ++i) {\n\t\tputs("x");\r\n\t}\n'),
    # Other languages and writings.
    "french": _asked("Où se trouve la bibliothèque ? Réponds en français, s'il te plaît."),
    "german": _asked("Schreibe einen kurzen Brief an deine Großmutter über schönes Wetter."),
    "chinese": _asked("你好，请介绍一下你自己。"),
    "mixed": _asked("Переведи на английский: «Я люблю читать». 日本語でも、한국어로도。 مرحبا بالعالم"),
    # Odd text.
    "unicode": _asked("👩‍👩‍👧‍👦 e\u0301 ≠ é, \u200bzero\u200bwidth, 𝟘𝟙, \U000e0041\U0010fffd ﬁ ½ \ufeff🇩🇪!"),
    "spaces": _asked("  one\n\n\n   two\t\tthree    \u00a0four\u3000five \n \n"),
    # Long ones.
    "minutes": _asked(f"Sum up these minutes in two sentences.\n\n{_MINUTES}"),
    "weather": _asked(f"{_REPORT}\n\nWhat was measured on day 3?"),
    "handlers": _asked(f"```python\n{_HANDLERS}```\nAdd a handler that shows a receipt, written alike."),
}  # fmt: skip

AKUNU_TINY = {
    "name": _asked(f"What is the name of this function?\n```python\n{_FUNCTION}```"),
    "rename": _asked(f"Rename `contents` to `texts`.\n```python\n{_FUNCTION}```"),
    "turns": _asked(
        "Now add the parameter `limit=10` at the end.",
        before=[
            (f"Repeat this function.\n```python\n{_FUNCTION}```", f"```python\n{_FUNCTION}```")
        ],
    ),
    "class": _asked(
        "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push("
    ),
    "unicode": _asked("straße = '👩‍👧 e\u0301 日本'\n\n\n\t# \u00a0½\ndef "),
}

CONVERSATIONS = {
    "SmolLM2-135M-Instruct.Q4_1": SMOLLM2,
    "akunu-tiny": AKUNU_TINY,
    "akunu-tiny-draft": AKUNU_TINY,
}
"""By the stem of the model's file."""


def prompts(model):
    """Name and messages of each prompt of a model: laid out by its template, then as raw text."""
    for name, messages in CONVERSATIONS[model].items():
        yield f"{name}, chat", messages
        yield f"{name}, raw", messages[-1]["content"]
