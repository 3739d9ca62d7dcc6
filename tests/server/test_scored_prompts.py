"""What programs that measure models send: lists of prompts, echoed and scored, over HTTP.

Mutants, made by hand, that these tests kill: the end of a reply without its log probability; scores of the
wrong prompt of a list; a begin token counted as text; a first token with a score; a score between two
rounds that others wait for.
"""

import itertools

import numpy as np
import pytest
from engine_server import serving
from gguf_files import write_tiny_llama
from scripted_server import ACCEPTED, USAGE, ScriptedBackend, events_of, running

from akunu_py.engine.engine import Engine
from akunu_py.server.events import Finished, Logprob, Logprobs
from akunu_py.values.reply_deltas import ContentDelta

PATH = "/v1/completions"
TEXTS = ["Hello there, who is it?", "abc", "The end of the day."]


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    path = tmp_path_factory.mktemp("scored") / "model.gguf"
    with Engine.load(write_tiny_llama(path, tied=False, seed=3, context=2048)) as engine:
        yield engine


@pytest.fixture(scope="module")
def server(engine):
    with serving(engine, parallel=2, places=4) as server:
        yield server


def scored(engine, ids):
    """Log probabilities by one pass, float64 [n - 1, vocab]."""
    rows = engine.logits(ids)[:-1].astype(np.float64)
    rows -= rows.max(axis=-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("max_tokens", [0, 1, 3])
@pytest.mark.parametrize("as_ids", [False, True])
def test_a_list_of_prompts_is_scored(engine, server, as_ids, max_tokens):
    with engine.sibling() as other:
        prompts = [other.prompt_ids(text) for text in TEXTS]
        rows = [scored(other, ids) for ids in prompts]
        replies = [other.generate(ids, max_tokens=max(1, max_tokens)) for ids in prompts]
    asked = {"echo": True, "logprobs": 2, "max_tokens": max_tokens, "temperature": 0}
    body = server.post(PATH, asked | {"prompt": prompts if as_ids else TEXTS}).json()
    assert body["usage"]["prompt_tokens"] == sum(map(len, prompts))
    for place, (choice, ids, row) in enumerate(zip(body["choices"], prompts, rows, strict=True)):
        assert choice["index"] == place
        reply = replies[place] if max_tokens else None
        found = choice["logprobs"]
        count = len(ids) + (len(reply.token_ids) if reply else 0)
        assert {len(values) for values in found.values()} == {count}
        assert (found["token_logprobs"][0], found["top_logprobs"][0]) == (None, None)
        expected = [row[at, token] for at, token in enumerate(ids[1:])]
        assert found["token_logprobs"][1 : len(ids)] == pytest.approx(expected, abs=2e-4)
        for at, top in enumerate(found["top_logprobs"][1 : len(ids)]):
            assert max(top.values()) == pytest.approx(row[at].max(), abs=2e-4)
            assert 2 <= len(top) <= 3
        said = reply.text if reply else ""
        text = TEXTS[place]
        shown = choice["text"].removesuffix(said)
        assert shown == text if not as_ids else shown.endswith(text)
        # Offsets are those of the text that is shown.
        offsets = found["text_offset"][: len(ids)]
        for (start, end), token in zip(
            itertools.pairwise([*offsets, len(shown)]), found["tokens"], strict=False
        ):
            assert shown[start:end] in {token, token.removeprefix(" "), ""}
        assert choice["finish_reason"] == (reply.finish_reason if reply else "length")


def test_the_end_of_a_reply_has_a_log_probability(engine, server):
    """lm-evaluation-harness takes off the last one, whatever it is."""
    ids = engine.prompt_ids("Hello")
    [end] = [*engine.tokenizer.end_ids][:1]
    asked = {"prompt": [ids], "echo": True, "logprobs": 1, "max_tokens": 1}
    [choice] = server.post(PATH, asked | {"logit_bias": {str(end): 100}}).json()["choices"]
    assert len(choice["logprobs"]["token_logprobs"]) == len(ids) + 1
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("asked", "special"),
    [
        ({"prompt": "Hello you"}, True),
        ({"prompt": "Hello you", "add_special_tokens": False}, False),
        ({"content": "Hello you"}, False),
        ({"content": "Hello you", "add_special": True}, True),
    ],
)
def test_the_tokenizer_is_there(engine, server, asked, special):
    begin, ids = engine.tokenizer.encode(""), engine.tokenizer.encode("Hello you")
    body = server.post("/tokenize", asked).json()
    assert body["tokens"] == (ids if special else ids[len(begin) :])
    assert body["count"] == len(body["tokens"])
    assert body["max_model_len"] == engine.context
    said = server.post("/detokenize", {"tokens": ids}).json()
    assert said["prompt"] == said["content"] == engine.tokenizer.decode(ids, with_control=True)
    info = server.get("/tokenizer_info").json()
    texts = engine.tokenizer.token_texts()
    assert info["eos_token"] in {texts[token] for token in engine.tokenizer.end_ids}
    assert (info["bos_token"] is None) == (not begin)


def test_fields_of_llama_cpp_change_tokens(engine, server):
    def ids(**fields):
        return server.post("/tokenize", {"content": f"{mark} é媽", **fields}).json()["tokens"]

    end = min(engine.tokenizer.end_ids)
    mark = engine.tokenizer.control_tokens()[end]
    assert ids()[0] == end
    assert end not in ids(parse_special=False)
    pieces = ids(with_pieces=True)
    assert [one["id"] for one in pieces] == ids()
    texts = (p.encode() if isinstance(p := one["piece"], str) else bytes(p) for one in pieces)
    assert b"".join(texts).decode() == f"{mark} é媽"


def test_a_chat_as_its_template_writes_it(engine, server):
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    prompt = server.post("/apply-template", {"messages": said}).json()["prompt"]
    assert prompt == engine.tokenizer.decode(engine.chat_ids(said), with_control=True)
    assert "Be brief." in prompt


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "x" * 1_000_001}, "prompt"),
        ("/tokenize", {"prompt": "x", "model": "other"}, "model"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [10**9]}, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "tokens"),
    ],
)
def test_what_is_no_text_is_refused(server, path, body, param):
    response = server.post(path, body)
    assert response.status_code in {400, 404}
    assert response.json()["error"]["param"].startswith(param)


CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
ASK = {"messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 8, "seed": 3}

# Half of "é" in each token.
HALF = Logprob("\ufffd", b"\xc3", -0.5, (Logprob("\ufffd", b"\xc3", -0.5),))
OTHER = Logprob("\ufffd", b"\xa9", float("-inf"), (Logprob("!", b"!", -1.0),))
LAST = Logprob(" b", b" b", -0.25)
SCRIPT = [
    ACCEPTED,
    Logprobs((HALF, OTHER)),
    ContentDelta("é"),
    Logprobs((LAST,)),
    ContentDelta(" b"),
    Finished("stop", USAGE),
]


@pytest.fixture(scope="module")
def scripted():
    with running(ScriptedBackend(scripts=[SCRIPT])) as server:
        yield server


@pytest.fixture(scope="module")
def served(roomy_gguf):
    with Engine.load(roomy_gguf) as engine, serving(engine, places=2) as server:
        yield server


def streamed(server, path, body):
    return [value for _, value in events_of(server.post(path, body | {"stream": True}))]


def test_chat_completions_have_them(scripted):
    asked = ASK | {"logprobs": True, "top_logprobs": 1}
    [choice] = scripted.post(CHAT, asked).json()["choices"]
    found = choice["logprobs"]["content"]
    assert [one["bytes"] for one in found] == [[0xC3], [0xA9], [32, 98]]
    assert [one["logprob"] for one in found] == [-0.5, -9999.0, -0.25]
    assert found[1]["top_logprobs"] == [{"token": "!", "bytes": [33], "logprob": -1.0}]
    assert b"".join(bytes(one["bytes"]) for one in found).decode() == "é b"
    chunks = streamed(scripted, CHAT, asked)[:-1]
    with_text = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["logprobs"]]
    assert [choice["delta"]["content"] for choice in with_text] == ["é", " b"]
    assert [one for choice in with_text for one in choice["logprobs"]["content"]] == found


def test_tokens_make_up_the_text_of_a_reply(served):
    asked = ASK | {"logprobs": True, "top_logprobs": 2}
    [choice] = served.post(CHAT, asked).json()["choices"]
    found = choice["logprobs"]["content"]
    data = b"".join(bytes(one["bytes"]) for one in found)
    assert data.decode(errors="replace") == choice["message"]["content"]
    # At temperature 0 the chosen token is the likeliest.
    for one in found:
        assert one["logprob"] == one["top_logprobs"][0]["logprob"] <= 0
        assert one["token"] == one["top_logprobs"][0]["token"]
        assert len(one["top_logprobs"]) == 2
    chunks = streamed(served, CHAT, asked)[:-1]
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert [one for part in parts if part for one in part["content"]] == found
    assert choice == served.post(CHAT, asked).json()["choices"][0]


def test_stop_sequence_is_named(served):
    text = served.post(CHAT, ASK).json()["choices"][0]["message"]["content"]
    stop = text[4:7]
    body = served.post("/v1/messages", ASK | {"stop_sequences": ["never said", stop]}).json()
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", stop)
    assert body["content"][0]["text"].strip() == text[: text.index(stop)].strip()
    body = served.post("/v1/messages", ASK).json()
    assert (body["stop_reason"], body["stop_sequence"]) == ("max_tokens", None)
