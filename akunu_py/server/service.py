"""What the routes of all APIs share: the backend, its models, and records of replies."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from akunu_py.server.backend import Backend, ServedModel
from akunu_py.server.errors import RequestError
from akunu_py.server.json_body import Bodies
from akunu_py.server.metrics import Metrics
from akunu_py.server.pulls import Pulls
from akunu_py.server.reply_response import Patience, ResponseOutcome
from akunu_py.system.shown_text import one_line
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.recent_texts import RecentTexts

_log = logging.getLogger(__name__)

_LONGEST_NAME = 120
_LONGEST_LIST = 1000
_MOST_TOLD = 1000

CLAUDE_PREFIX = "claude-akunu-"
"""Claude Code shows only models whose ids begin with "claude"; each model has such a name, too."""


@dataclass(slots=True)
class Service:
    """The parts that routes use."""

    backend: Backend
    defaults: GenerationConfig = field(default_factory=GenerationConfig)
    """How to sample where neither a request nor the model's makers say."""
    given: Collection[str] = ()
    """The options that a user chose, which the makers' values do not replace."""
    patience: Patience = field(default_factory=Patience)
    """How long responses wait for what."""
    metrics: Metrics = field(default_factory=Metrics)
    bodies: Bodies = field(default_factory=Bodies)
    items: RecentTexts[tuple[str, str]] = field(default_factory=RecentTexts)
    """Items of recent replies of /v1/responses, and responses, as JSON, by client and id."""
    pulls: Pulls | None = None
    """What requests have fetched; None where they may not."""
    _told: set[tuple[str, str]] = field(default_factory=set)

    def model(self, name: str | None, *, prefixes: Sequence[str] = ()) -> ServedModel:
        """Return the model that a request names; without a name, the default one.

        `prefixes` begin names that stand for the default model, since a client gives no others.
        Ollama's clients add ":latest". Names are compared with those of models, and never used as a
        path or address. Raises RequestError for an unknown one.
        """
        models = self.backend.models()
        if not models:
            raise RequestError("the server has no model", status=404, code="model_not_found")
        if not name:
            return models[0]
        name = name.removesuffix(":latest")
        for model in models:
            if name in {model.id, CLAUDE_PREFIX + model.id, *model.names}:
                return model
        if name.startswith(tuple(prefixes)):
            return models[0]
        known = ", ".join(model.id for model in models)
        raise RequestError(
            f"there is no model named {name!r:.100}; known are {known:.500}",
            status=404, param="model", code="model_not_found",
        )  # fmt: skip

    def defaults_of(self, model: ServedModel) -> GenerationConfig:
        """Return how replies of a model are sampled where a request does not say."""
        return model.recommended.fill(self.defaults, self.given)

    def ignored_header(self, path: str, ignored: Sequence[str]) -> Mapping[str, str]:
        """Return the header that lists what has no effect; log what was not logged yet."""
        if not ignored:
            return {}
        names = dict.fromkeys(
            one_line(name).strip()[:_LONGEST_NAME] for name in islice(ignored, _MOST_TOLD)
        )
        for name in names:
            if (path, name) not in self._told and len(self._told) < _MOST_TOLD:
                self._told.add((path, name))
                _log.info("%s: %s is ignored", path, name)
        return {"x-akunu-ignored": ", ".join(names)[:_LONGEST_LIST].strip()}

    def record(self, path: str, client: str, outcome: ResponseOutcome) -> None:
        """Count a response, and log it."""
        self.metrics.add(path, outcome)
        usage = outcome.usage
        if usage is None:
            ending = "client left" if outcome.disconnected else "failed"
            _log.info(
                "%s %d %s after %.1f s (%s)", path, outcome.status, ending, outcome.total_s, client
            )
            return
        _log.info(
            "%s %d in %.1f s (%s): prompt %d = %d reused + %d prefilled%s; reply %d; drafts %d of "
            "%d accepted",
            path, outcome.status, outcome.total_s, client, usage.prompt_tokens,
            usage.cached_tokens, usage.prefilled_tokens,
            f" ({usage.cache_note})" if usage.cache_note else "",
            usage.completion_tokens, usage.stats.accepted, usage.stats.drafted,
        )  # fmt: skip
