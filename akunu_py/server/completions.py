"""/v1/completions: OpenAI's older format, which continues a text or fills a gap in it.

Editors use it with `suffix`, for models whose vocabulary has the tokens of fill-in-the-middle.
"""

from functools import partial
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from akunu_py.server import sse
from akunu_py.server.choices import ChoicePlace, in_choices
from akunu_py.server.errors import RequestError
from akunu_py.server.events import Accepted, Addition, Finished, Logprobs
from akunu_py.server.generation_fields import OpenAIBody
from akunu_py.server.incoming import receive
from akunu_py.server.logprobs import CompletionLogprobs, logprobs_option
from akunu_py.server.openai_form import OpenAIForm
from akunu_py.server.requests import CompletionRequest
from akunu_py.values.reply_deltas import ContentDelta, ReasoningDelta
from akunu_py.values.types import FinishReason

PATH = "/v1/completions"

_REFUSED = {
    "echo": "put the prompt before the text yourself",
    "grammar": "use /v1/chat/completions with response_format",
    "guided_grammar": "use /v1/chat/completions with response_format",
    "min_tokens": "akunu always ends at the model's end token",
    "ignore_eos": "akunu always ends at the model's end token",
}
_NO_EFFECT = frozenset({"user"})
_FINISH: dict[FinishReason, str] = {
    "stop": "stop", "length": "length", "loop": "stop", "tool_calls": "stop",
}  # fmt: skip


class CompletionBody(OpenAIBody, kw_only=True):
    """The body of a request."""

    prompt: str | list[str | int | list[int]]
    suffix: str | None = None
    best_of: int | None = None
    logprobs: int | None = None


async def completions(http: HttpRequest) -> Response:
    """Answer `POST /v1/completions`."""
    asked = await receive(http, CompletionBody, refused=_REFUSED, no_effect=_NO_EFFECT)
    body, model = asked.body, asked.model
    asked.check_suffix(body.suffix)
    choices = asked.choices(body.n)
    if body.best_of not in {None, choices}:
        raise RequestError(
            "best_of is not supported; leave it out, and choose among the n choices yourself",
            param="best_of",
        )
    options = body.options()
    options["logprobs"] = logprobs_option(
        body.logprobs is not None, body.logprobs, field="logprobs"
    )
    request = CompletionRequest(
        model=model.id,
        prompt=_prompt(body.prompt),
        suffix=body.suffix or None,
        config=asked.config(options),
    )
    form = partial(
        CompletionForm,
        model.id,
        include_usage=body.include_usage,
        figures=bool(body.timings_per_token),
    )
    return await asked.respond(
        request, in_choices("cmpl-", form, choices), stream=body.stream, choices=choices
    )


def _prompt(given: str | list[str | int | list[int]]) -> str | tuple[int, ...]:
    """Return the only prompt of a request: a text, or token ids."""
    if isinstance(given, str):
        return given
    ids = [token for token in given if isinstance(token, int)]
    if ids and len(ids) == len(given):
        return tuple(ids)
    if len(given) != 1:
        raise RequestError(
            f"prompt has {len(given)} prompts; send a request for each", param="prompt"
        )
    [only] = given
    return tuple(only) if isinstance(only, list) else str(only)


class CompletionForm(OpenAIForm):
    """A reply as text completion or its chunks."""

    prompt_field = "prompt"
    chunk_kind = "text_completion"

    def __init__(self, model: str, place: ChoicePlace, **shared: bool) -> None:
        super().__init__(model, place, **shared)
        self._spelled = CompletionLogprobs()

    def opening(self, accepted: Accepted | None) -> bytes:
        """Return a chunk without text, so that the first byte does not wait for the prefill."""
        del accepted
        return self.keep_alive()

    def addition(self, delta: Addition) -> bytes:
        """Return the chunk of more text; a continued text has neither reasoning nor calls."""
        match delta:
            case Logprobs(tokens):
                self._logprobs += tokens
                self._all_logprobs += tokens
            case ContentDelta(text) | ReasoningDelta(text):
                self._text += text
                return self._chunk(text)
        return b""

    def keep_alive(self) -> bytes:
        """Return a chunk without text."""
        return self._chunk("")

    def last_chunk(self, finished: Finished) -> bytes:
        return self._chunk("", _FINISH[finished.reason])

    def whole(self, finished: Finished) -> dict[str, Any]:
        """Return the text completion."""
        self._logprobs, self._spelled = self._all_logprobs, CompletionLogprobs()
        choice = self._choice(self._text, _FINISH[finished.reason])
        fields = self._fields(self.chunk_kind) | {"choices": [choice]}
        return fields | self._totals(finished.usage)

    def _chunk(self, text: str, finish_reason: str | None = None) -> bytes:
        return sse.data(self._chunk_of(self._choice(text, finish_reason)))

    def _choice(self, text: str, finish_reason: str | None) -> dict[str, Any]:
        logprobs = self._spelled.fields(self._logprobs) if self._logprobs else None
        self._logprobs = []
        return {
            "index": self._place.index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }
