"""What is read again of a conversation of a thousand tokens, with each way to go on."""

import pytest
from fake_chat import do, say

from akunu_py import Engine
from akunu_py.cli.chat.actions import Actions, Tools
from akunu_py.engine.conversation import Conversation, Question
from akunu_py.values.types import GenerationConfig


def test_a_turn_after_a_thousand_tokens_prefills_its_message_alone(roomy_gguf):
    with Engine.load(roomy_gguf) as engine:
        # A reply of a random model reads back as other tokens; this one does not.
        only = {engine.tokenizer.encode("the")[-1]: 1e6}
        conversation = Conversation(
            engine, GenerationConfig(max_tokens=12, logit_bias=only), "the system"
        )
        first = say(conversation, "the hello world " * 340).result
        second = say(conversation, "hello world").result
    assert first.num_cached_tokens == 0
    assert first.num_prompt_tokens > 1000
    prefilled = second.num_prompt_tokens - second.num_cached_tokens
    # The reply's last token had no pass yet.
    new = second.num_prompt_tokens - first.num_prompt_tokens - len(first.token_ids)
    assert prefilled == new + 1 < 12


@pytest.mark.slow
def test_what_is_prefilled_after_each_way_to_go_on(roomy_gguf, tmp_path):
    """Of a conversation of a thousand tokens: the message alone, but after another model."""
    with Engine.load(roomy_gguf) as engine:
        # A reply of a random model reads back as other tokens; this one does not.
        only = {engine.tokenizer.encode("the")[-1]: 1e6}
        conversation = Conversation(engine, GenerationConfig(max_tokens=12, logit_bias=only), "sys")
        actions = Actions(
            conversation,
            Tools(lambda _: None, lambda _: Engine.load(roomy_gguf), lambda _: "the end"),
        )

        def prefilled(question):
            result = say(conversation, question.text, instead=question.instead).result
            assert result.num_prompt_tokens > 1000
            return result.num_prompt_tokens - result.num_cached_tokens

        def message():
            return Question("hello world")

        # The first reply is interrupted while it is read, and what was read is kept.
        first = Question("the hello world " * 340)
        with conversation.ask(first, lambda done, _: reply.cancel() if done else None) as reply:
            for _ in reply:
                pass
        assert reply.result.token_ids == ()
        assert 0 < prefilled(do(actions, "/retry")) < conversation.num_tokens()
        own = prefilled(message())
        assert own < 12
        assert prefilled(do(actions, "/retry")) == 1
        do(actions, "/undo")
        # Its first token may have been the last that the caches were shown.
        assert prefilled(message()) <= own
        assert prefilled(do(actions, "/edit")) <= own + 2
        # Of an interrupted reply what was said is kept.
        with conversation.ask(message()) as reply:
            for event in reply:
                if len(event.token_ids):
                    reply.cancel()
        assert reply.text
        assert prefilled(message()) <= own + 2
        do(actions, f"/save {tmp_path}/s.json")
        do(actions, f"/load {tmp_path}/s.json")
        assert prefilled(message()) <= own + 2
        do(actions, "/system other")
        assert prefilled(message()) > 1000
        do(actions, "/model default")
        assert prefilled(message()) > 1000
        assert prefilled(message()) <= own + 2
        conversation.engine.close()
