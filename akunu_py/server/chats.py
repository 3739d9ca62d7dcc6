"""Replies to conversations: from messages to a job of the worker."""

import threading
from collections.abc import Sequence
from typing import Unpack

from akunu_py.engine.engine import Engine
from akunu_py.server.checkpoints import Checkpoints
from akunu_py.server.conversation_memory import ReasoningMemory, ToolMemory
from akunu_py.server.worker import Prepared, ReplyJob, Worker
from akunu_py.tool_calls.enforceable import enforceable
from akunu_py.values.generation_config import GenerationConfig, GenerationOptions
from akunu_py.values.messages import (
    GivenMessage,
    GivenTool,
    Message,
    ToolChoice,
    read_messages,
    read_tools,
)


class Chats:
    """Asks a worker for replies of a model to conversations; without a name, of the default model.

    Laying out and tokenizing a long conversation takes a while, so an event loop calls `ask` in a
    thread. Calls may come from several threads.
    """

    def __init__(self, worker: Worker, model: str = "") -> None:
        self._worker = worker
        self._model = model
        self._checkpoints: tuple[Engine, Checkpoints] | None = None
        self._reasoning = ReasoningMemory()
        self._tools = ToolMemory()
        self._lock = threading.Lock()

    def ask(
        self,
        messages: Sequence[GivenMessage],
        config: GenerationConfig | None = None,
        *,
        tools: Sequence[GivenTool] | None = None,
        tool_choice: ToolChoice = "auto",
        client: str = "",
        continued: bool = True,
        prediction: str = "",
        **options: Unpack[GenerationOptions],
    ) -> ReplyJob:
        """Ask for the reply to a conversation.

        Reasoning that the client left out of earlier replies is put back, and tools that came later
        are told of where they came. `prediction` is a text that the reply may repeat. Raises as
        `Engine.chat` and `Worker.ask` do.
        """
        offered, read = read_tools(tools), read_messages(messages)
        # Now, since it may take a while, and `prepare` is called with the model's lock.
        enforceable(offered)

        def prepare(engine: Engine) -> Prepared:
            with self._lock:
                said, arranged = self._tools.arrange(
                    client, self._reasoning.restore(client, read), offered
                )
            call = engine.check_chat(
                said,
                config,
                tools=arranged,
                tool_choice=tool_choice,
                continued=continued,
                **options,
            )
            places = self._checkpoints_of(engine).of(
                said, arranged, call.prompt, call.choice.config
            )
            expected = engine.prompt_ids(prediction) if prediction else ()
            return Prepared(call, places, expected)

        return self._worker.ask(prepare, model=self._model, client=client, respell=True)

    def _checkpoints_of(self, engine: Engine) -> Checkpoints:
        """Return the finder of an engine, which a model has one after another."""
        if self._checkpoints is None or self._checkpoints[0] is not engine:
            self._checkpoints = engine, Checkpoints(engine)
        return self._checkpoints[1]

    def remember(self, messages: Sequence[GivenMessage], reply: Message, client: str = "") -> None:
        """Keep the reasoning of a finished reply, for a client that sends back only the answer."""
        with self._lock:
            self._reasoning.remember(client, read_messages(messages), reply)
