"""Conversations of several threads."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from akunu_py.server.backend import ChatRequest
from akunu_py.server.engine_backend import Chats
from akunu_py.values.generation_config import GenerationConfig
from akunu_py.values.messages import Message


def test_conversations_are_laid_out_one_at_a_time(toy, make_worker, monkeypatch):
    busy = threading.Lock()
    sound = toy.check_chat

    def watched(*arguments, **options):
        assert busy.acquire(blocking=False), "two threads use the tokenizer"
        try:
            time.sleep(0.02)
            return sound(*arguments, **options)
        finally:
            busy.release()

    monkeypatch.setattr(toy, "check_chat", watched)
    chats = Chats(make_worker(toy))
    request = ChatRequest(
        model="", messages=(Message("user", "hello"),), config=GenerationConfig(max_tokens=1)
    )
    with ThreadPoolExecutor(4) as threads:
        jobs = list(threads.map(lambda _: chats.ask(request, ""), range(4)))
    assert len(jobs) == 4
