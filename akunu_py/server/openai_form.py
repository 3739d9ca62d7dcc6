"""What the replies of OpenAI's older APIs, of chats and of texts, have in common."""

from typing import Any, ClassVar

from akunu_py.server import sse
from akunu_py.server.choices import ChoiceForm, ChoicePlace
from akunu_py.server.errors import Api, Problem, openai_error
from akunu_py.server.events import Finished, Usage
from akunu_py.server.metrics import reply_figures


class OpenAIForm(ChoiceForm):
    """A choice of a completion, or its chunks.

    Args:
        model: its name.
        place: which choice of which response it is.
        include_usage: whether a stream ends with the usage.
        figures: whether times and counts of drafts are added.

    """

    api: Api = "openai"
    chunk_kind: ClassVar[str]

    def __init__(
        self, model: str, place: ChoicePlace, *, include_usage: bool = False, figures: bool = False
    ) -> None:
        self._model = model
        self._place = place
        self._include_usage = include_usage
        self._figures = figures
        self._text = ""  # of all chunks together

    def ending(self, finished: Finished) -> bytes:
        """Return the usage if it was asked for, and the end."""
        if not (self._include_usage or self._figures):
            return sse.DONE
        fields = self._fields(self.chunk_kind) | {"choices": []} | self._totals(finished.usage)
        return sse.data(fields) + sse.DONE

    def failing(self, problem: Problem, request_id: str) -> bytes:
        """Return the error as an event. SDKs raise it; clients that wait for the end find one."""
        del request_id
        return sse.data(openai_error(problem)) + sse.DONE

    def _totals(self, usage: Usage) -> dict[str, Any]:
        return {"usage": usage_fields(usage)} | (reply_figures(usage) if self._figures else {})

    def _chunk_of(self, choice: dict[str, Any], **more: Any) -> dict[str, Any]:
        fields = self._fields(self.chunk_kind) | more | {"choices": [choice]}
        return fields | {"usage": None} if self._include_usage else fields

    def _fields(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._place.response,
            "object": kind,
            "created": self._place.created,
            "model": self._model,
        }


def usage_fields(usage: Usage) -> dict[str, Any]:
    """Return the usage of a reply as OpenAI's older APIs have it."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "accepted_prediction_tokens": usage.accepted_predictions,
            "rejected_prediction_tokens": usage.rejected_predictions,
        },
    }
