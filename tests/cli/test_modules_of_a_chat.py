"""How much of akunu a chat runs up to its first token."""

import json
from pathlib import Path

from programs import python

MODEL = Path(__file__).parents[2] / "models" / "akunu-tiny.gguf"

LIMIT = 120
"""A module runs if a function that is written in it is called, also while modules are imported.
Comprehensions and generator expressions are functions; bodies of modules and classes are not, nor
are the methods that `dataclass` makes."""

FOR_FEW = ("constraints", "tool_calls.parser", "models.heads", "models.ranks", "models.adapters")
"""What serves forms of replies, tools, heads, several machines and adapters: most replies have
none."""

PROGRAM = """
import io, json, os, sys, threading

ran = set()

def note(frame, event, _):
    code = frame.f_code
    # CO_OPTIMIZED: neither a module nor a class. Methods of dataclasses are in no file.
    if event == "call" and code.co_flags & 1 and not code.co_filename.startswith("<"):
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] == "akunu_py":
            ran.add(name)

class FirstToken(io.StringIO):
    def write(self, text):
        if text.strip():
            loaded = [name for name in sys.modules if name.startswith("akunu_py.")]
            print(json.dumps([text, sorted(ran), loaded]), file=sys.__stdout__, flush=True)
            os._exit(0)
        return len(text)

sys.stdout = FirstToken()
threading.setprofile(note)
sys.setprofile(note)
from akunu_py.__main__ import main
main()
"""


def test_the_first_token_of_a_chat_needs_few_modules():
    done = python("-c", PROGRAM, "chat", MODEL, "--temperature", "0", input="hi\n")
    text, ran, loaded = json.loads(done.stdout)
    assert text == "Hello"
    # Those of the ends of the way, so that what is counted is what ran.
    assert {"akunu_py.cli.main", "akunu_py.engine.reply", "akunu_py.models.session"} <= set(ran)
    assert len(ran) <= LIMIT, "\n".join(ran)
    rare = [name for name in loaded if name.removeprefix("akunu_py.").startswith(FOR_FEW)]
    assert not rare
