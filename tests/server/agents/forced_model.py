"""A model forced to a script: it reads one file and edits another with the tools of an agent."""

from dataclasses import dataclass
from pathlib import Path

from scripted_server import called, said

from akunu_py.values.reply_deltas import ContentDelta, ReasoningDelta

TASK = "Read notes.txt and change greeting.py as it says."
NOTES = "The greeting should be: Good morning\n"
BEFORE = 'def greet():\n    return "Hello"\n'
AFTER = BEFORE.replace("Hello", "Good morning")
PATCH = """*** Begin Patch
*** Update File: greeting.py
@@
 def greet():
-    return "Hello"
+    return "Good morning"
*** End Patch
"""
THOUGHTS = "I read both files first."
DONE = "greeting.py says Good morning now."
# What aider asks for in place of calls.
BLOCK = """greeting.py
```
<<<<<<< SEARCH
    return "Hello"
=======
    return "Good morning"
>>>>>>> REPLACE
```
"""

_READERS = ("Read", "read", "read_file")


@dataclass
class ForcedModel:
    """Answers requests of an agent that works in a folder; a script for `ScriptedBackend`."""

    folder: Path

    def __call__(self, request):
        tools = {tool.name: tool for tool in request.tools}
        results = sum(message.role == "tool" for message in request.messages)
        if not tools:
            # Either aider asks, or for the title of the session.
            aider = "SEARCH/REPLACE" in request.messages[0].text
            return said(BLOCK, DONE) if aider else said("Greeting")
        reads = self._reads(tools)
        if results == 0:
            return called(*reads, before=[ReasoningDelta(THOUGHTS)])
        if results == len(reads):
            return called(self._edit(tools), before=[ContentDelta("Now I edit.")])
        return said(DONE)

    def _reads(self, tools):
        if "exec_command" in tools:  # Codex
            return [("exec_command", {"cmd": "cat notes.txt greeting.py"})]
        if "read_files" in tools:  # Cline
            files = [{"path": str(self.folder / name)} for name in ("notes.txt", "greeting.py")]
            return [("read_files", {"files": [file]}) for file in files]
        tool = next(tools[name] for name in _READERS if name in tools)
        return [
            (tool.name, _arguments(tool, path=str(self.folder / file)))
            for file in ("notes.txt", "greeting.py")
        ]

    def _edit(self, tools):
        if "apply_patch" in tools:
            return "apply_patch", {"input": PATCH}
        if "exec_command" in tools:
            return "exec_command", {"cmd": f"apply_patch <<'END'\n{PATCH}END"}
        tool = next(tools[name] for name in ("Edit", "edit", "editor") if name in tools)
        path = str(self.folder / "greeting.py")
        return tool.name, _arguments(tool, path=path, old='"Hello"', new='"Good morning"')


def _arguments(tool, **values):
    """Give values to the parameters of a tool, under whatever names an agent has for them."""
    named = {
        "path": ("file_path", "filePath", "path"),
        "old": ("old_string", "oldString", "old_text"),
        "new": ("new_string", "newString", "new_text"),
    }
    known = tool.parameters["properties"]
    if "edits" in known:  # pi
        edit = {"oldText": values["old"], "newText": values["new"]}
        return {"path": values["path"], "edits": [edit]}
    return {next(one for one in named[key] if one in known): values[key] for key in values}
