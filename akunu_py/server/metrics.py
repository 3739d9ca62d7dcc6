"""Counts of replies for Prometheus, and the figures of one reply for tools that compare servers."""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from akunu_py.server.backend import Health, ServedModel
from akunu_py.server.events import Usage
from akunu_py.server.reply_response import ResponseOutcome

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Counts since the server started.

    Names of draft counts follow vLLM's (`spec_decode_num_draft_tokens`, ...).
    """

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._seen: dict[str, int] = {}
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry, buckets=_SECONDS)
        self._requests = counter(
            "akunu_requests",
            "Replies by path and status; 499: the client left.",
            ["path", "status"],
        )
        self._prompt = counter("akunu_prompt_tokens", "Tokens of prompts.")
        self._cached = counter(
            "akunu_cached_prompt_tokens", "Tokens of prompts reused from a cache."
        )
        self._generated = counter("akunu_generation_tokens", "Tokens of replies.")
        self._drafts = counter("akunu_spec_decode_num_drafts", "Steps with a draft.")
        self._drafted = counter("akunu_spec_decode_num_draft_tokens", "Drafted tokens.")
        self._accepted = counter("akunu_spec_decode_num_accepted_tokens", "Accepted tokens.")
        self._accepted_at = counter(
            "akunu_spec_decode_num_accepted_tokens_per_pos",
            "Accepted tokens by their position in the draft.",
            ["position"],
        )
        self._first = histogram(
            "akunu_time_to_first_token_seconds", "From the request to the first addition."
        )
        self._total = histogram("akunu_request_seconds", "From the request to its end.")
        self._running = gauge("akunu_requests_running", "Replies under way.")
        self._waiting = gauge("akunu_requests_waiting", "Replies in the queue.")
        self._cache = gauge("akunu_prefix_cache_bytes", "Memory of the prefix cache.")
        self._loaded = gauge("akunu_model_loaded", "Whether a model is in memory.", ["model"])
        self._model_events = counter(
            "akunu_model_events",
            "Models that were loaded, evicted for another, or unloaded because nobody used them.",
            ["event"],
        )

    def add(self, path: str, outcome: ResponseOutcome) -> None:
        """Count one response."""
        status = 499 if outcome.disconnected else outcome.status
        self._requests.labels(path, str(status)).inc()
        self._total.observe(outcome.total_s)
        if outcome.first_s is not None:
            self._first.observe(outcome.first_s)
        if (usage := outcome.usage) is None:
            return
        self._prompt.inc(usage.prompt_tokens)
        self._cached.inc(usage.cached_tokens)
        self._generated.inc(usage.completion_tokens)
        self._drafts.inc(usage.stats.steps_with_draft)
        self._drafted.inc(usage.stats.drafted)
        self._accepted.inc(usage.stats.accepted)
        for position, count in enumerate(usage.stats.accepted_per_position):
            self._accepted_at.labels(str(position)).inc(count)

    def text(self, health: Health, models: Sequence[ServedModel] = ()) -> bytes:
        """Return all counts in Prometheus's text format."""
        self._running.set(health.running)
        self._waiting.set(health.waiting)
        self._cache.set(health.cache_bytes)
        for model in models:
            self._loaded.labels(model.id).set(model.loaded)
        for event, count in (
            ("load", health.loads), ("eviction", health.evictions), ("unload", health.unloads)
        ):  # fmt: skip
            self._model_events.labels(event).inc(count - self._seen.get(event, 0))
            self._seen[event] = count
        return generate_latest(self._registry)


def reply_figures(usage: Usage) -> dict[str, Any]:
    """Return `timings` as llama.cpp has them, and `metrics` as vLLM has them.

    Only for clients that ask: strict ones refuse fields that they do not know.
    """
    stats = usage.stats
    return {
        "timings": {
            "cache_n": usage.cached_tokens,
            **_pace("prompt", usage.prefilled_tokens, usage.prefill_s),
            **_pace("predicted", usage.completion_tokens, usage.decode_s),
            "draft_n": stats.drafted,
            "draft_n_accepted": stats.accepted,
        },
        "metrics": {
            "speculative_decoding": {
                "mean_acceptance_length": stats.tokens_per_pass,
                "draft_acceptance_rate": stats.hit_rate,
                "acceptance_histogram": _histogram(usage),
                "num_spec_steps": stats.steps_with_draft,
                "num_accepted_draft_tokens": stats.accepted,
                "num_draft_tokens": stats.drafted,
            }
        },
    }


def _pace(name: str, count: int, seconds: float) -> dict[str, float]:
    return {
        f"{name}_n": count,
        f"{name}_ms": seconds * 1000,
        f"{name}_per_token_ms": seconds * 1000 / count if count else 0.0,
        f"{name}_per_second": count / seconds if seconds > 0 else 0.0,
    }


def _histogram(usage: Usage) -> list[int]:
    """Return in how many steps with a draft exactly 0, 1, 2, ... tokens were accepted."""
    stats = usage.stats
    at_least = [stats.steps_with_draft, *stats.accepted_per_position, 0]
    return [more - fewer for more, fewer in itertools.pairwise(at_least)]
