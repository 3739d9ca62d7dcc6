"""Which template is used: the file's, a named one of the file, or a fallback; tools in templates."""

import json
import re

import numpy as np
import pytest
from gguf_files import CHAT_TEMPLATE
from test_gguf_tokenizer import tiny, tiny_metadata
from vocabularies import real

from akunu_py.system.errors import ConfigError, ModelFormatError
from akunu_py.tokenizers import from_gguf
from akunu_py.tokenizers.chat_template import (
    _BY_ARCHITECTURE,
    _BY_NAME,
    ChatTemplate,
    choose_fallback,
)

CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Bye"},
]
SPECIAL = {"bos": "<s>", "eos": "</s>"}
WRITTEN = {
    "chatml": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
    "<|im_start|>assistant\n",
    "llama3": "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral": "<s>[INST] Be brief.\n\nHi[/INST] Hello.</s>[INST] Bye[/INST]",
    "llama2": "<s>[INST] Be brief.\n\nHi [/INST] Hello. </s><s>[INST] Bye [/INST]",
    "gemma": "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n"
    "Hello.<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
    "phi3": "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello.<|end|>\n"
    "<|user|>\nBye<|end|>\n<|assistant|>\n",
}


def test_every_format_is_here():
    assert WRITTEN.keys() == _BY_NAME.keys()
    assert {name for names in _BY_ARCHITECTURE.values() for name in names} <= _BY_NAME.keys()


@pytest.mark.parametrize("name", WRITTEN)
class TestFormats:
    def test_what_it_writes(self, name):
        assert ChatTemplate(_BY_NAME[name].source, SPECIAL).render(CONVERSATION) == WRITTEN[name]

    def test_its_tokens_are_all_that_it_writes(self, name):
        tokens = re.findall(r"<[^<>\s]+>|\[[^\[\]\s]+\]", WRITTEN[name])
        text_of_llama_2 = {"[INST]", "[/INST]"} if name == "llama2" else set()
        roles = {"<|system|>"}  # of conversations with a system message alone
        written = set(tokens) - {"<s>", "</s>"} - text_of_llama_2
        assert written - roles == set(_BY_NAME[name].tokens) - roles


@pytest.mark.parametrize(
    ("name", "expected", "start"),
    [pytest.param("qwen2", "chatml", 0, marks=pytest.mark.slow), ("phi-3", "phi3", 1)],
)
def test_the_fallback_is_what_the_file_s_own_template_writes(name, expected, start):
    tokenizer, metadata = real(name)
    assert tokenizer.template_source == "file"
    without = dict(metadata)
    del without["tokenizer.chat_template"]
    fallback = from_gguf(without)
    assert fallback.template_source == f"fallback:{expected}"
    messages = CONVERSATION[start:]
    assert fallback.encode_chat(messages) == tokenizer.encode_chat(messages)


def controls(*tokens):
    return frozenset(tokens)


CHOICES = [
    ("llama", ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), "", "llama3"),
    ("llama", ("<|im_start|>", "<|im_end|>"), "", "chatml"),
    ("llama", ("[INST]", "[/INST]"), "", "mistral"),
    ("llama", ("<s>",), "Llama 2 7B Chat", "llama2"),
    ("llama", ("<s>",), "Llama 2 7B", None),
    ("llama", ("<|start_header_id|>", "<|eot_id|>"), "", None),
    ("qwen2", ("<|im_start|>", "<|im_end|>"), "", "chatml"),
    ("gemma2", ("<start_of_turn>", "<end_of_turn>"), "", "gemma"),
    ("gemma2", ("<|im_start|>", "<|im_end|>"), "", "chatml"),
    ("qwen2", ("<start_of_turn>", "<end_of_turn>"), "", None),
    ("phi3", ("<|user|>", "<|assistant|>", "<|end|>"), "", "phi3"),
    ("unheard-of", ("<|im_start|>", "<|im_end|>"), "", "chatml"),
    ("gpt2", ("<|endoftext|>",), "gpt2 chat", None),
    (None, ("<|im_start|>", "<|im_end|>"), "", None),
]  # fmt: skip


@pytest.mark.parametrize(("architecture", "tokens", "name", "expected"), CHOICES)
def test_choice(architecture, tokens, name, expected):
    found = choose_fallback(architecture, controls(*tokens), name)
    assert (found and found.name) == expected


def test_a_fallback_is_noticed_once(caplog):
    tokenizer = tiny("bpe", general__architecture="phi3")
    assert tokenizer.template_source == "fallback:phi3"
    assert tokenizer.has_chat_template
    assert not caplog.records
    for _ in range(2):
        tokenizer.encode_chat([{"role": "user", "content": "Hi"}])
    assert [record.message for record in caplog.records if "phi3" in record.message] != []
    assert len(caplog.records) == 1


def test_without_one_that_fits():
    tokenizer = tiny("bpe", general__architecture="gemma2")
    assert tokenizer.template_source is None
    assert not tokenizer.has_chat_template
    with pytest.raises(ConfigError, match=r"no chat template.*a text to continue"):
        tokenizer.encode_chat([{"role": "user", "content": "Hi"}])


TOOL = {
    "type": "function",
    "function": {
        "name": "end",
        "description": "The <|end|> of <|us",
        "parameters": {"a": [1, None]},
    },
}


class TestNamedTemplates:
    def make(self):
        metadata = tiny_metadata("bpe", tokenizer__chat_template=CHAT_TEMPLATE)
        metadata["tokenizer.chat_templates"] = ["tool_use"]
        metadata["tokenizer.chat_template.tool_use"] = "{{ tools | tojson }}{{ messages | length }}"
        return from_gguf(metadata)

    def test_tools_take_the_template_for_tools(self):
        tokenizer = self.make()
        messages = [{"role": "user", "content": "Hi"}]
        assert tokenizer.decode(tokenizer.encode_chat(messages)) == "Hi"
        text = tokenizer.decode(tokenizer.encode_chat(messages, tools=[TOOL]))
        assert text.endswith("]1")

    def test_a_broken_one_fails_when_it_is_chosen(self):
        metadata = tiny_metadata("bpe", tokenizer__chat_template=CHAT_TEMPLATE)
        metadata["tokenizer.chat_template.tool_use"] = "{% if"
        tokenizer, messages = from_gguf(metadata), [{"role": "user", "content": "Hi"}]
        assert tokenizer.encode_chat(messages)
        with pytest.raises(ModelFormatError, match="chat template fails"):
            tokenizer.encode_chat(messages, tools=[TOOL])


class TestTools:
    source = "{% if tools is not none %}{% for t in tools %}{{ t | tojson }}{{ t.function.name }}{% endfor %}{% endif %}"

    def encode(self, tools):
        metadata = tiny_metadata("bpe", tokenizer__chat_template=self.source)
        ids = from_gguf(metadata).encode_chat([{"role": "user", "content": "Hi"}], tools=tools)
        kinds = metadata["tokenizer.ggml.token_type"]
        return from_gguf(metadata).decode(ids), int(np.sum(kinds[ids] == 3))

    def test_they_reach_the_template_as_they_are(self):
        text, special = self.encode([TOOL])
        assert text == json.dumps(TOOL) + "end"
        assert special == 1  # the begin token: what a description says is text
        assert self.encode(None) == self.encode([]) == ("", 1)

    def test_they_are_checked(self):
        with pytest.raises(ConfigError, match=r"tools\[1\] has the name 'end' of another tool"):
            self.encode([TOOL, TOOL])
