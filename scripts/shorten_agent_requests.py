#!/usr/bin/env python3
"""Make tests/server/agents/requests/AGENT.json of a run of offline_run.py, which is beside it.

    python scripts/shorten_agent_requests.py AGENT FOLDER

It is the last request of the run, with the whole conversation. Texts of the agent are replaced by
their length, names of folders and ids by others, and most tools are left out: what stays is the
structure, and what the forced model and its task said.
"""

import json
import re
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
AGENTS = TESTS / "server" / "agents"
sys.path[:0] = [str(TESTS), str(AGENTS)]
from forced_model import TASK

REQUESTS = AGENTS / "requests"
OURS = (TASK, "Good morning", "I read both", "Now I edit", "akunu1.")
LONGEST = 40
USED = {"Read", "Edit", "read", "edit", "read_file", "exec_command", "read_files", "editor"}
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{24,}")


def shortened(value, folder, key=""):
    if isinstance(value, dict):
        return {name: shortened(one, folder, name) for name, one in value.items()}
    if isinstance(value, list):
        return [shortened(one, folder, key) for one in value]
    if not isinstance(value, str):
        return value
    value = value.replace(f"{folder}/work", "/project").replace(f"{folder}/home", "/home/user")
    value = _ID.sub(lambda match: re.sub("[0-9a-f]", "0", match[0]), value)
    if key == "id":
        return value
    if key == "definition":
        return r"start: /(.|\n)+/"  # a grammar must be one
    # Whole texts of ours: an agent may put one into a longer text of its own.
    if any(text in value for text in OURS) and len(value) < 500:
        return value
    if key == "description" or len(value) > LONGEST:
        return f"[{len(value)} characters]"
    return value


def tool_name(tool):
    return tool.get("name") or tool.get("function", {}).get("name")


def few(tools):
    """Return the tools that were used, one other, and one of each further type."""
    kept, types = [], set()
    for tool in tools:
        kind = tool.get("type")
        if tool_name(tool) in USED or kind not in types:
            kept.append(tool)
            types.add(kind)
        if kind == "namespace":
            tool["tools"] = tool["tools"][:2]
    return kept


if __name__ == "__main__":
    _, agent, folder = sys.argv
    record = json.loads((Path(folder) / "result.json").read_text())["requests"][-1]
    body = record["asked"]
    if "tools" in body:
        body["tools"] = few(body["tools"])
    fixture = {"path": record["path"], "body": shortened(body, folder)}
    REQUESTS.mkdir(exist_ok=True)
    text = json.dumps(fixture, indent=1, ensure_ascii=False)
    (REQUESTS / f"{agent}.json").write_text(text + "\n")
