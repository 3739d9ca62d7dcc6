"""Replies to conversations: from messages to a job of the worker."""

import threading
from collections.abc import Sequence
from typing import Unpack

from akunu_py.engine.generation_options import GenerationOptions
from akunu_py.engine.tool_use import ToolChoice
from akunu_py.messages import GivenMessage, GivenTool, Message, read_messages, read_tools
from akunu_py.server.checkpoints import Checkpoints
from akunu_py.server.thoughts import Thoughts
from akunu_py.server.worker import Job, Worker
from akunu_py.types import GenerationConfig


class Chats:
    """Asks a worker for replies to conversations.

    Laying out and tokenizing a long conversation takes a while, so an event loop calls `ask` in a
    thread. Calls may come from several threads.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._lock = threading.Lock()
        self._checkpoints = Checkpoints(worker.engine)
        self._thoughts = Thoughts()

    def ask(
        self,
        messages: Sequence[GivenMessage],
        config: GenerationConfig | None = None,
        *,
        tools: Sequence[GivenTool] | None = None,
        tool_choice: ToolChoice = "auto",
        client: str = "",
        prediction: str = "",
        **options: Unpack[GenerationOptions],
    ) -> Job:
        """Ask for the reply to a conversation.

        Thoughts that the client left out of earlier replies are put back. `prediction` is a text
        that the reply may repeat. Raises as `Engine.chat`
        and `Worker.submit` do.
        """
        offered = read_tools(tools)
        engine = self._worker.engine
        # One at a time: libraries do not promise that a tokenizer can be shared.
        with self._lock:
            said = self._thoughts.restored(client, read_messages(messages))
            call = engine.check_chat(
                said, config, tools=offered, tool_choice=tool_choice, **options
            )
            places = self._checkpoints.of(said, offered, call.prompt, call.choice.config)
            expected = engine.prompt_ids(prediction) if prediction else ()
        return self._worker.submit(
            call, client=client, checkpoints=places, respell=True, prediction=expected
        )

    def remember(self, messages: Sequence[GivenMessage], reply: Message, client: str = "") -> None:
        """Keep the thoughts of a finished reply, for a client that sends it back without them."""
        with self._lock:
            self._thoughts.remember(client, read_messages(messages), reply)
