"""/v1/completions: OpenAI's older format, which continues a text or fills a gap in it.

Editors use it with `suffix`, for models whose vocabulary has the tokens of fill-in-the-middle;
programs that measure models with lists of prompts, `echo` and `logprobs`.
"""

from functools import partial
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from akunu_py.server import sse
from akunu_py.server.backend import CompletionRequest
from akunu_py.server.choices import ChoicePlace, in_choices
from akunu_py.server.errors import RequestError
from akunu_py.server.events import Accepted, Addition, Finished, Logprobs
from akunu_py.server.generation_fields import REFUSED_BY_OPENAI_FORMATS, OpenAIBody
from akunu_py.server.incoming import receive, texts_or_ids
from akunu_py.server.logprobs import CompletionLogprobs, logprobs_option
from akunu_py.server.openai_form import OpenAIForm
from akunu_py.values.reply_deltas import ContentDelta, ReasoningDelta
from akunu_py.values.types import FinishReason

PATH = "/v1/completions"

_NO_EFFECT = frozenset({"user"})
_MOST_PROMPTS = 128
_FINISH: dict[FinishReason, str] = {
    "stop": "stop", "length": "length", "loop": "stop", "tool_calls": "stop",
}  # fmt: skip


class CompletionBody(OpenAIBody, kw_only=True):
    """The body of a request."""

    prompt: str | list[str | int | list[int]]
    suffix: str | None = None
    best_of: int | None = None
    logprobs: int | None = None
    echo: bool | None = None


async def completions(http: HttpRequest) -> Response:
    """Answer `POST /v1/completions`."""
    asked = await receive(
        http, CompletionBody, refused=REFUSED_BY_OPENAI_FORMATS, no_effect=_NO_EFFECT
    )
    body, model = asked.body, asked.model
    asked.check_suffix(body.suffix)
    choices = asked.choices(body.n)
    if body.best_of not in {None, choices}:
        raise RequestError(
            "best_of is not supported; leave it out, and choose among the n choices yourself",
            param="best_of",
        )
    if body.echo and body.suffix:
        raise RequestError(
            "echo: a text that fills a gap does not continue its prompt; leave echo or suffix out",
            param="echo",
        )
    options = body.options()
    options["logprobs"] = logprobs_option(
        body.logprobs is not None, body.logprobs, field="logprobs"
    )
    if reads_only := options["max_tokens"] == 0:
        options["max_tokens"] = 1
    config = await asked.lay_out(lambda asked: asked.config(options))
    requests = [
        CompletionRequest(
            model=model.id,
            prompt=prompt,
            suffix=body.suffix or None,
            config=config,
            echo=bool(body.echo),
            reads_only=reads_only,
        )
        for prompt in texts_or_ids(body.prompt, "prompt", _MOST_PROMPTS)
    ]
    form = partial(
        CompletionForm,
        model.id,
        include_usage=body.include_usage,
        figures=bool(body.timings_per_token),
    )
    return await asked.respond(
        *requests,
        form=in_choices("cmpl-", form, len(requests) * choices),
        stream=body.stream,
        choices=choices,
    )


class CompletionForm(OpenAIForm):
    """A reply as text completion or its chunks."""

    prompt_field = "prompt"
    chunk_kind = "text_completion"

    def __init__(self, model: str, place: ChoicePlace, **shared: bool) -> None:
        super().__init__(model, place, **shared)
        self._spelled = CompletionLogprobs()
        # Of the text that comes next, and of all.
        self._next, self._all = CompletionLogprobs.none(), CompletionLogprobs.none()

    def opening(self, accepted: Accepted | None) -> bytes:
        """Return a chunk without text, so that the first byte does not wait for the prefill."""
        del accepted
        return self.keep_alive()

    def addition(self, delta: Addition) -> bytes:
        """Return the chunk of more text; a continued text has neither reasoning nor calls."""
        match delta:
            case Logprobs(tokens):
                # Now, since the tokens of many prompts would take long together.
                for name, values in self._spelled.fields(tokens).items():
                    self._next[name] += values
                    self._all[name] += values
            case ContentDelta(text) | ReasoningDelta(text):
                self._text += text
                return self._chunk(text)
        return b""

    def keep_alive(self) -> bytes:
        """Return a chunk without text."""
        return self._chunk("")

    def last_chunk(self, finished: Finished) -> bytes:
        return sse.data(self._chunk_of(self._end("", finished)))

    def whole(self, finished: Finished) -> dict[str, Any]:
        """Return the text completion."""
        self._next = self._all
        fields = self._fields(self.chunk_kind) | {"choices": [self._end(self._text, finished)]}
        return fields | self._totals(finished.usage)

    def _chunk(self, text: str) -> bytes:
        return sse.data(self._chunk_of(self._choice(text)))

    def _end(self, text: str, finished: Finished) -> dict[str, Any]:
        return self._choice(text, _FINISH[finished.reason]) | finished.own_fields

    def _choice(self, text: str, finish_reason: str | None = None) -> dict[str, Any]:
        logprobs, self._next = self._next, CompletionLogprobs.none()
        return {
            "index": self._place.index,
            "text": text,
            "logprobs": logprobs if logprobs["tokens"] else None,
            "finish_reason": finish_reason,
        }
