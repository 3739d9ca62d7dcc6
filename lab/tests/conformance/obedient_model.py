"""A model for the scripted server that does what is asked of it, and mistakes that it may make."""

import json

from scripted_server import call

from akunu_py.server.backend import ServedModel
from akunu_py.server.events import Accepted, Finished, Usage
from akunu_py.system.errors import ConfigError, ContextOverflowError
from akunu_py.values.messages import Tool
from akunu_py.values.reply_deltas import ContentDelta

SERVED = ServedModel(id="tiny", name="Tiny Model", context=2048, created=1_700_000_000)


def example(schema):
    """Return a value that fits a schema of the checks."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "string":
        return "yes"
    return {name: example(one) for name, one in schema.get("properties", {}).items()}


class ObedientModel:
    """Makes scripts for requests; a word is a token.

    `mistakes` are names of what it does wrong.
    """

    def __init__(self, *mistakes):
        self.mistakes = frozenset(mistakes)
        self._seen = []

    def __call__(self, request):
        prompt = self._prompt(request)
        if len(prompt) >= SERVED.context:
            if "no overflow" in self.mistakes:
                raise ConfigError("too much")
            raise ContextOverflowError("too long", num_tokens=len(prompt), context=SERVED.context)
        cached = self._cached(prompt)
        events, reason, written = self._written(request)
        usage = Usage(prompt_tokens=len(prompt), cached_tokens=cached, completion_tokens=written)
        return [Accepted(len(prompt), cached), *events, Finished(reason, usage)]

    def _prompt(self, request):
        messages = list(request.messages)
        later = [message for message in messages[1:] if message.role == "system"]
        if "system dropped" in self.mistakes:
            messages = [message for message in messages if message not in later]
        if "system hoisted" in self.mistakes:
            messages = [*later, *(message for message in messages if message not in later)]
        return [word for one in messages for word in (one.role, *one.text.split())]

    def _cached(self, prompt):
        if "no cache" in self.mistakes:
            return 0
        best = 0
        for seen in self._seen:
            same = next(
                (at for at, (a, b) in enumerate(zip(seen, prompt, strict=False)) if a != b),
                min(len(seen), len(prompt)),
            )
            best = max(best, same)
        self._seen.append(prompt)
        return min(best, len(prompt) - 1)

    def _written(self, request):
        """Return events, the reason of the end, and how many tokens were written."""
        limit = request.config.max_tokens
        constraint = request.config.constraint
        if constraint is not None and "no such type" in constraint.source:
            raise ConfigError("no such type")
        choice, tools = request.tool_choice, {tool.name: tool for tool in request.tools}
        named = choice if isinstance(choice, dict) else {"mode": choice, "names": [*tools]}
        chosen = [tools[name] for name in named.get("names", [named.get("name")])]
        if "any tool" in self.mistakes:
            chosen = list(tools.values())
        wanted = named.get("mode", "required") == "required" or "always calls" in self.mistakes
        if tools and wanted and "never calls" not in self.mistakes:
            return self._call(request, chosen[0], limit)
        text = "Hello"
        if constraint is not None and "no schema" not in self.mistakes:
            text = json.dumps(example(json.loads(constraint.source)))
        if "seedless" in self.mistakes:
            text += str(len(self._seen))
        return [ContentDelta(text)], "stop", 1 + ("miscounts" in self.mistakes) * len(self._seen)

    def _call(self, request, tool: Tool, limit):
        arguments = example(tool.parameters)
        if tool.input_form:
            arguments = {"input": "maybe" if "no grammar" in self.mistakes else "yes"}
        if "wrong arguments" in self.mistakes:
            arguments = {"city": "Berlin"}
        events = call(0, tool.name, arguments)
        if limit is not None and limit < 10:
            if "cut unsaid" in self.mistakes:
                return [], "stop", limit
            return events[:-2], "length", limit
        return events, "tool_calls", 10
