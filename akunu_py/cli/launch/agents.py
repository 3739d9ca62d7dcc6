"""Coding agents, and the settings with which each uses a local server for one session.

The settings are variables and arguments of the agent's process. No file of the user's is written.
Where an agent could send something elsewhere by itself, such as a title's request to a small model
of its maker, it is set to this server as well.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from akunu_py.cli.launch.local_server import HOST, LocalServer
from akunu_py.system.settings import KEY_VARIABLE

_NO_KEY = "local"
"""Sent where the server asks for no key, since agents insist on one."""

_MOST_OUTPUT = 32_000
"""Tokens of a reply that Claude Code and opencode ask for at most by themselves."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What is added to an agent's process."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """Of its environment; an empty value hides one that the user has set."""
    arguments: tuple[str, ...] = ()
    """Before those that the user gives."""


@dataclass(frozen=True, slots=True)
class Agent:
    """A coding agent."""

    title: str
    program: str
    install: str
    """The usual command that installs it."""
    sends: int
    """Tokens of its instructions and tools, which come before the first question: the most of our
    runs, with the default model's tokenizer and none of a user's own tools."""
    settings: Callable[[LocalServer], AgentSettings]

    @property
    def context(self) -> int:
        """Return the least power of two that leaves a third of a context for the work."""
        return 1 << (3 * self.sends // 2 - 1).bit_length()


def shortage(agent: Agent, server: LocalServer) -> str:
    """Return that a context is too small for an agent, and what would do; "" for one that is not.

    Such a session is not refused: a user may have set the agent to send less.
    """
    if server.context is None or server.context >= agent.context:
        return ""
    if server.trained is None or server.trained >= agent.context:
        has = "" if server.trained is None else f", of the {server.trained:,} that the model has"
        more = f"start the server with --context {agent.context}{has}"
    else:
        more = (
            f"the model has no more than {server.trained:,}, so choose one with a context of "
            f"{agent.context:,} or more"
        )
    return (
        f"{agent.title} sends up to {agent.sends:,} tokens before the first question, and "
        f"{server.model} is served with a context of {server.context:,}: {more}"
    )


def past_proxies(settings: AgentSettings, environment: Mapping[str, str]) -> AgentSettings:
    """Return settings with which requests to this machine go past the proxies of an environment."""
    given = {name.lower() for name, value in environment.items() if value}
    if not given & {"http_proxy", "all_proxy"}:
        return settings
    known = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    past = f"{known},{HOST}" if known else HOST
    variables = {**settings.variables, "NO_PROXY": past, "no_proxy": past}
    return AgentSettings(variables, settings.arguments)


def _claude(server: LocalServer) -> AgentSettings:
    """Return variables of https://code.claude.com/docs/en/env-vars.

    The model has its plain name: for names that begin with "claude-" Claude Code 2.1.197 assumes a
    context of 200,000 tokens, whatever CLAUDE_CODE_MAX_CONTEXT_TOKENS says; 2.1.332 does not.
    """
    names = (
        "ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL",
    )  # fmt: skip
    variables = {
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_AUTH_TOKEN": server.key or _NO_KEY,
        # The user's own key is not for this server.
        "ANTHROPIC_API_KEY": "",
        **dict.fromkeys(names, server.model),
        # A block that differs in every request.
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    if server.context is not None:
        variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(server.context)
        variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(_output(server.context))
    return AgentSettings(variables)


def _codex(server: LocalServer) -> AgentSettings:
    """Return overrides of https://developers.openai.com/codex/config-reference."""
    provider = "model_providers.akunu"
    overrides: dict[str, str | int] = {
        "model": server.model,
        "model_provider": "akunu",
        f"{provider}.name": "akunu",
        f"{provider}.base_url": f"{server.url}/v1",
        f"{provider}.wire_api": "responses",
    }
    if server.context is not None:
        overrides["model_context_window"] = server.context
    variables = {}
    if server.key:
        overrides[f"{provider}.env_key"] = KEY_VARIABLE
        variables[KEY_VARIABLE] = server.key
    # A text of JSON is one of TOML as well.
    pairs = (("-c", f"{name}={json.dumps(value)}") for name, value in overrides.items())
    return AgentSettings(variables, tuple(word for pair in pairs for word in pair))


def _opencode(server: LocalServer) -> AgentSettings:
    """Return a configuration of https://opencode.ai/docs/config, merged over the user's files."""
    options = {"baseURL": f"{server.url}/v1"}
    variables = {}
    if server.key:
        options["apiKey"] = f"{{env:{KEY_VARIABLE}}}"
        variables[KEY_VARIABLE] = server.key
    model: dict[str, object] = {"name": server.model}
    if server.context is not None:
        model["limit"] = {"context": server.context, "output": _output(server.context)}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "akunu",
        "options": options,
        "models": {server.model: model},
    }
    name = f"akunu/{server.model}"
    # Titles are made by the small model.
    config = {"provider": {"akunu": provider}, "model": name, "small_model": name}
    return AgentSettings({"OPENCODE_CONFIG_CONTENT": json.dumps(config), **variables})


def _qwen(server: LocalServer) -> AgentSettings:
    """Return variables of https://qwenlm.github.io/qwen-code-docs/en/users/configuration/auth/."""
    variables = {
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_KEY": server.key or _NO_KEY,
        "OPENAI_MODEL": server.model,
    }
    return AgentSettings(variables, ("--auth-type", "openai"))


def _output(context: int) -> int:
    """Return how many tokens of a context a reply may have."""
    return min(context // 4, _MOST_OUTPUT)


AGENTS: Mapping[str, Agent] = {
    "claude": Agent(
        "Claude Code", "claude", "npm install -g @anthropic-ai/claude-code", 17_800, _claude
    ),
    "codex": Agent("Codex", "codex", "npm install -g @openai/codex", 9_000, _codex),
    "opencode": Agent("opencode", "opencode", "npm install -g opencode-ai", 7_700, _opencode),
    "qwen": Agent("Qwen Code", "qwen", "npm install -g @qwen-code/qwen-code", 18_400, _qwen),
}
"""The agents by the word that `akunu launch` takes."""
