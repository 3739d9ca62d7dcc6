"""Responses and items to which a client may refer later, in memory until others need the place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from akunu_py.server.errors import RequestError
from akunu_py.server.responses.items import InputItem
from akunu_py.values.recent_texts import RecentTexts


class _Response(msgspec.Struct):
    output: list[InputItem]
    previous_response_id: str | None


@dataclass(frozen=True, slots=True)
class KeptResponses:
    """What is kept for one client, as JSON by id.

    The input of a response is kept beside it, without those before: a conversation is kept once.
    """

    texts: RecentTexts[tuple[str, str]]
    client: str

    def get(self, id_: str) -> bytes | None:
        return self.texts.get((self.client, id_))

    def keep(self, made: Mapping[str, Any], given: bytes) -> None:
        """Keep an item, or a response with its input."""
        self.texts.keep((self.client, made["id"]), msgspec.json.encode(made))
        if made.get("object") == "response":
            self.texts.keep((self.client, _input_of(made["id"])), given)

    def drop(self, id_: str) -> None:
        """Forget a response, its items and its input."""
        output = msgspec.json.decode(self.get(id_) or b"{}").get("output", ())
        for one in (id_, _input_of(id_), *(item["id"] for item in output)):
            self.texts.drop((self.client, one))

    def items_until(self, id_: str | None) -> list[InputItem]:
        """Return the items of the conversation up to and with a response; none without one.

        Raises RequestError if one of its responses is not kept.
        """
        turns: list[list[InputItem]] = []
        while id_:
            kept, given = self.get(id_), self.get(_input_of(id_))
            if kept is None or given is None:
                raise RequestError(
                    f"the response {id_!r:.100} is not here: the server keeps recent ones, in "
                    "memory; send the whole conversation as input",
                    param="previous_response_id",
                    code="previous_response_not_found",
                )
            response = msgspec.json.decode(kept, type=_Response)
            turns.append(
                as_items(msgspec.json.decode(given, type=str | list[InputItem])) + response.output
            )
            id_ = response.previous_response_id
        return [item for turn in reversed(turns) for item in turn]


def as_items(given: str | list[InputItem]) -> list[InputItem]:
    """Return the input of a request as items."""
    return [InputItem(role="user", content=given)] if isinstance(given, str) else given


def _input_of(id_: str) -> str:
    return f"input of {id_}"
