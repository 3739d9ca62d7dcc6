#!/usr/bin/env python3
"""Run one agent against a server whose model is forced; the only network is the loopback.

    unshare -n python tests/server/agents/offline_run.py codex FOLDER

FOLDER must exist; the agent's home and its work are folders in it. FOLDER/result.json gets its exit
code, its output, the file that it edited, and all requests with their answers. PATH has the agent;
`akunu launch` starts those that it knows. "codex-catalog" is Codex with the server's catalog of models, for which
it offers apply_patch as a tool of its own. Needs the rights of `unshare -n`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import scripted_server
from forced_model import BEFORE, NOTES, TASK, ForcedModel

from akunu_py.server.backend import ServedModel

LIMIT_S = 120
MODEL = ServedModel(
    id="tiny", name="Tiny Model", context=131_072, created=1_700_000_000, thinks=True
)
LAUNCHED = {
    "claude": ["-p", TASK, "--allowedTools", "Read Edit"],
    "codex": ["exec", "--skip-git-repo-check", "-s", "danger-full-access", TASK],
    "opencode": ["run", "--auto", TASK],
    "qwen": ["--approval-mode", "yolo", TASK],
}
# The others as their documentation says, where URL is the server's.
OTHERS = {
    "aider": "aider --openai-api-base URL/v1 --openai-api-key local --model openai/tiny --no-git "
    "--edit-format diff --yes-always --analytics-disable --no-check-update --no-show-release-notes "
    "--no-show-model-warnings notes.txt greeting.py --message",
    "cline": "cline -P openai-compatible -m tiny",
    "pi": "pi --provider akunu --model tiny -p",
}
CLINE = "cline auth openai-compatible --apikey local --modelid tiny --baseurl URL/v1"
PI = {"api": "openai-completions", "apiKey": "local", "models": [{"id": "tiny"}]}


class Recorder:
    """Wraps an application; keeps requests and answers."""

    def __init__(self, app, kept):
        self._app, self._kept = app, kept

    async def __call__(self, scope, receive, send):
        record = {"method": scope["method"], "path": scope["path"]}
        asked, answered = bytearray(), bytearray()
        self._kept.append(record)

        async def heard():
            message = await receive()
            asked.extend(message.get("body", b""))
            return message

        async def said(message):
            if message["type"] == "http.response.start":
                record["status"] = message["status"]
                record["ignored"] = dict(message["headers"]).get(b"x-akunu-ignored", b"").decode()
            answered.extend(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, heard, said)
        finally:
            record["asked"] = json.loads(asked) if asked else None
            record["answered"] = answered.decode()


def run(agent, folder):
    """Return what happened, as JSON-ready values."""
    work, home = folder / "work", folder / "home"
    work.mkdir()
    home.mkdir()
    (work / "notes.txt").write_text(NOTES)
    (work / "greeting.py").write_text(BEFORE)
    environment = {
        **{name: os.environ[name] for name in ("PATH", "AKUNU_CONFIG") if name in os.environ},
        "HOME": str(home), "TERM": "dumb", "LANG": "C.UTF-8",
    }  # fmt: skip
    kept = []
    make_app = scripted_server.make_app
    scripted_server.make_app = lambda service, access: Recorder(make_app(service, access), kept)
    backend = scripted_server.ScriptedBackend(scripts=ForcedModel(work), served=(MODEL,))
    with scripted_server.running(backend) as server:
        agent, _, catalog = agent.partition("-")
        if agent in LAUNCHED:
            arguments = []
            if catalog:
                (folder / "models.json").write_bytes(server.get("/v1/models").content)
                arguments = ["-c", f"model_catalog_json={folder / 'models.json'}"]
            command = [
                sys.executable, "-P", "-m", "akunu_py", "launch", agent, "--port", str(server.port),
                "--", *arguments, *LAUNCHED[agent],
            ]  # fmt: skip
        else:
            if agent == "pi":
                place = home / ".pi/agent/models.json"
                place.parent.mkdir(parents=True)
                provider = PI | {"baseUrl": f"{server.url}/v1"}
                place.write_text(json.dumps({"providers": {"akunu": provider}}))
            if agent == "cline":
                given = CLINE.replace("URL", server.url).split()
                subprocess.run(given, cwd=work, env=environment, capture_output=True, check=True)
            command = [*OTHERS[agent].replace("URL", server.url).split(), TASK]
        done = subprocess.run(
            command, cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        return {
            "code": done.returncode,
            "output": done.stdout,
            "errors": done.stderr,
            "edited": (work / "greeting.py").read_text(),
            "requests": kept,
        }


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    _, name, place = sys.argv
    result = run(name, Path(place))
    (Path(place) / "result.json").write_text(json.dumps(result, indent=1))
