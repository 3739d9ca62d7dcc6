"""The trace format: what is read, and that every error names line and field."""

import json

import pytest

from akunu_lab.replay.curves import load_curves, parse_curves, shipped_curves
from akunu_lab.replay.tokens import tokenize
from akunu_lab.replay.traces import half_of, parse_trace, read_trace
from akunu_py.drafting.memory import vocabulary_fingerprint
from akunu_py.system.errors import ConfigError

ITEM = {"id": "a", "category": "code", "prompt": "p", "output": "o"}


def lines(*records):
    return "\n".join(json.dumps(record) for record in records).encode()


def test_a_trace():
    data = lines(
        ITEM,
        {**ITEM, "id": "b/0", "session": "b", "turn": 0, "model": "", "license": "MIT"},
        {**ITEM, "id": "b/1", "session": "b", "turn": 3, "output": "line\u2028two"},
    )
    first, second, third = parse_trace(data + b"\n\n", "t.jsonl")
    assert (first.id, first.category, first.prompt, first.output) == ("a", "code", "p", "o")
    assert (first.session, first.turn) == ("a", 0)
    assert (second.session, third.session, third.turn) == ("b", "b", 3)
    assert third.output == "line\u2028two"
    assert second.half == third.half == half_of("b")


def test_halves():
    # The SHA-256 of "a" ends with the digit b, those of "b", "c", "d" with d, 6 and 4.
    assert [half_of(session) for session in "abcd"] == [1, 1, 0, 0]
    assert 400 < sum(half_of(str(number)) for number in range(1000)) < 600


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (b"{", ": not JSON"),
        (b"[1]", ": an item is a JSON object"),
        (b'"' + b"\xff" + b'"', r": not UTF-8 text \(byte 1"),
        (b"[" * 100_000, ": not JSON"),
        (b'{"id": "b", "id": "c"}', ", field id: given twice"),
        (b'{"id": "b", "category": "c", "prompt": "p"}', ": Object missing required field output"),
        ({"id": "a"}, ", field id: 'a' is the id of line 1"),
        ({"id": 7}, ", field id: Expected str, got int"),
        ({"output": ""}, ", field output: Expected str of length >= 1"),
        ({"prompt": None}, ", field prompt: Expected str, got null"),
        ({"category": ""}, ", field category: Expected str of length >= 1"),
        ({"output": "\ud800"}, ", field output: half a surrogate"),
        ({"tokens": []}, ": Object contains unknown field tokens"),
        ({"model": 3}, ", field model: Expected str, got int"),
        ({"turn": 1}, ", field turn: needs a session"),
        ({"session": "s", "turn": True}, ", field turn: Expected int, got bool"),
        ({"session": "s", "turn": -1}, ", field turn: Expected int >= 0"),
        ({"session": ""}, ", field session: Expected str of length >= 1"),
        ({"session": "a"}, ", field turn: 0 follows 0"),
    ],
)
def test_mistakes_are_named_with_line_and_field(second, words):
    line = second if isinstance(second, bytes) else lines({**ITEM, "id": "b", **second})
    with pytest.raises(ConfigError, match=f"^t.jsonl, line 2{words}"):
        parse_trace(lines(ITEM) + b"\n" + line, "t.jsonl")


def test_items_of_a_session_that_lie_apart():
    first, last = ({"id": f"s/{n}", "session": "s", "turn": n} for n in range(2))
    data = lines({**ITEM, **first}, ITEM, {**ITEM, **last})
    with pytest.raises(ConfigError, match=r"^t, line 3, field session: 's' has earlier items"):
        parse_trace(data, "t")


def test_files_that_cannot_be_used(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_trace(tmp_path / "none.jsonl")
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"\n \n")
    with pytest.raises(ConfigError, match=r"empty.jsonl has no items"):
        read_trace(empty)


def test_lines_that_are_reported_and_left_out():
    data = b"\n".join((
        b"{",
        lines(ITEM),
        lines({**ITEM, "output": "again"}),
        b"",
        lines({**ITEM, "id": "s/1", "session": "s", "turn": 1}),
        lines({**ITEM, "id": "s/2", "session": "s", "turn": 1}),
        lines({**ITEM, "id": "s/3", "session": "s", "turn": 2}),
    ))  # fmt: skip
    failures = []
    items = parse_trace(data, "t.jsonl", failures)
    assert [item.id for item in items] == ["a", "s/1", "s/3"]
    assert [failure.item for failure in failures] == [f"t.jsonl, line {n}" for n in (1, 3, 6)]
    assert failures[0].error.startswith("not JSON: ")
    assert failures[1].error == "field id: 'a' is the id of line 2 already"
    assert failures[2].error.startswith("field turn: 1 follows 1")


def test_a_trace_without_any_line_that_can_be_used_is_an_error():
    failures = []
    with pytest.raises(ConfigError, match=r"^t has no item that can be used; t, line 1: not JSON"):
        parse_trace(b"{\n[]", "t", failures)
    assert failures == []


class LetterTokenizer:
    """A character is a token; `around` is what every text gets at its ends."""

    vocabulary_size = 128

    def token_texts(self):
        return [chr(letter) for letter in range(self.vocabulary_size)]

    def __init__(self, around=((), ()), end_ids=frozenset({1, 2})):
        self.around = around
        self.end_ids = end_ids

    def encode(self, text, *, parse_special=False):
        assert not parse_special
        return [*self.around[0], *map(ord, text), *self.around[1]]


@pytest.mark.parametrize("around", [((), ()), ((7,), ()), ((7,), (8,))])
def test_tokens(around):
    items = parse_trace(lines(ITEM, {**ITEM, "id": "b", "output": "long"}), "t")
    first, second = tokenize(items, LetterTokenizer(around), max_output_tokens=3)
    assert first.prompt == (*around[0], ord("p"), *around[1])
    assert first.output == (ord("o"), 1)  # the lower end id
    assert second.output == tuple(map(ord, "lon"))  # cut: no end to predict
    assert (first.id, first.category, first.session) == ("a", "code", "a")


LETTERS = vocabulary_fingerprint(LetterTokenizer().token_texts())
WITH_IDS = {**ITEM, "prompt_ids": [5, 6], "token_ids": [9, 8, 7], "vocabulary": LETTERS}


def test_ids_of_the_same_vocabulary_are_taken_as_they_are():
    items = parse_trace(lines(WITH_IDS, {**ITEM, "id": "b"}), "t")
    first, second = tokenize(items, LetterTokenizer(((7,), ())))
    assert (first.prompt, first.output) == ((5, 6), (9, 8, 7, 1))  # an end has to be predicted
    assert (second.prompt, second.output) == ((7, ord("p")), (ord("o"), 1))
    ended = parse_trace(lines({**WITH_IDS, "token_ids": [9, 2]}), "t")
    assert tokenize(ended, LetterTokenizer())[0].output == (9, 2)
    assert tokenize(items, LetterTokenizer(), max_output_tokens=2)[0].output == (9, 8)


@pytest.mark.parametrize(
    "changed", [{"vocabulary": "0" * 32}, {"vocabulary": ""}, {"token_ids": None}]
)
def test_ids_that_are_not_known_to_be_of_the_vocabulary_are_not_taken(changed):
    record = {key: value for key, value in {**WITH_IDS, **changed}.items() if value is not None}
    items = parse_trace(lines(record, {**WITH_IDS, "id": "b"}, {**record, "id": "c"}), "t")
    first, known, again = tokenize(items, LetterTokenizer())
    assert first.output == again.output == (ord("o"), 1)
    assert first.prompt == again.prompt == (ord("p"),)
    assert known.output == (9, 8, 7, 1)


def test_an_id_beyond_the_vocabulary_is_named():
    items = parse_trace(lines({**WITH_IDS, "token_ids": [9, 128]}), "t")
    failures = []
    assert tokenize(items, LetterTokenizer(), failures=failures) == []
    assert [(f.item, f.error) for f in failures] == [
        ("a", "the item a has the id 128; the vocabulary has 128")
    ]


def test_outputs_that_just_fit_and_tokenizers_without_an_end():
    items = parse_trace(lines({**ITEM, "output": "abc"}), "t")
    (item,) = tokenize(items, LetterTokenizer(), max_output_tokens=4)
    assert item.output == (97, 98, 99, 1)
    (item,) = tokenize(items, LetterTokenizer(), max_output_tokens=3)
    assert item.output == (97, 98, 99)
    (item,) = tokenize(items, LetterTokenizer(end_ids=frozenset()))
    assert item.output == (97, 98, 99)


def test_items_that_cannot_be_encoded_are_left_out():
    class Picky(LetterTokenizer):
        def encode(self, text, *, parse_special=False):
            if "x" in text:
                raise ValueError("no x")
            return super().encode(text, parse_special=parse_special)

    records = [
        {**ITEM, "id": "1", "output": "x"},
        {**ITEM, "id": "2", "prompt": "x"},
        {**ITEM, "id": "3"},
    ]
    items, failures, done = parse_trace(lines(*records), "t"), [], []
    (item,) = tokenize(items, Picky(), failures=failures, progress=lambda: done.append(1))
    assert item.id == "3"
    assert [(failure.item, failure.error) for failure in failures] == [("1", "no x"), ("2", "no x")]
    assert len(done) == 3
    with pytest.raises(ValueError, match="no x"):
        tokenize(items, Picky())


def test_the_shipped_curves():
    curves = shipped_curves()
    assert set(curves) == {
        "m5-max-70b-4bit", "m4-pro-matmul-4bit", "m2-pro-moe-26b-a4b", "gentle-slope",
    }  # fmt: skip
    assert all(curve.cost(1) == 1 and curve.fall() is None for curve in curves.values())
    assert curves["m5-max-70b-4bit"].cost(9) == 2.2
    assert curves["gentle-slope"].cost(41) == pytest.approx(3.0)
    flat = curves["m4-pro-matmul-4bit"]
    assert flat.cost(13) == flat.cost(32) < flat.cost(33)


def test_curves_of_a_file(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"curves": {"mine": {"points": {"1": 1, "4": 2.5}, "source": "me"}}}')
    curves = load_curves([str(path), "gentle-slope"])
    assert list(curves) == ["mine", "gentle-slope"]
    assert curves["mine"].cost(3) == 2.0
    with pytest.raises(
        ConfigError, match="neither a curve nor a file named 'm9'; choose from m5-max"
    ):
        load_curves(["m9"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "c.json is not valid JSON"),
        ("[]", "c.json: Expected object, got array"),
        ('{"curves": {}}', "c.json has no curves"),
        ('{"curves": {"x": 3}}', "c.json, curve 'x': Expected object, got int"),
        ('{"curves": {"x": {"points": {"1": 1}, "flat": 3}}}', "unknown field flat"),
        ('{"curves": {"x": {"points": {"one": 1}}}}', "points: Expected int, got str"),
        ('{"curves": {"x": {"points": {"1": "1"}}}}', "Expected float, got str"),
        ('{"curves": {"x": {"points": {"1": true}}}}', "Expected float, got bool"),
        ('{"curves": {"x": {"points": {"2": 1.0}}}}', "curve 'x': a cost curve needs"),
        ('{"curves": {"x": {"points": {"1": -1.0}}}}', "curve 'x': a cost curve needs"),
        ('{"curves": {"x": {"points": {"1": 1}, "flat_after": 3}}}', "past the last point"),
        (
            '{"curves": {"x": {"points": {"1": 1, "9": 2}, "flat_after": 3, "flat_until": 5}}}',
            "past the last point",
        ),
    ],
)
def test_malformed_curves(text, words):
    with pytest.raises(ConfigError, match=r"^c\.json") as raised:
        parse_curves(text, "c.json")
    assert words in str(raised.value)


PROMPT = "def hello(world):\n    return world"


def test_what_an_engine_wrote_is_read_back(engine, tmp_path):
    path = tmp_path / "t.jsonl"
    messages = [{"role": "user", "content": "hello <|end|> world"}]
    for turn in (1, 2):
        stream = engine.stream_chat(messages, max_tokens=12, temperature=0.7, top_p=0.9, seed=4)
        with pytest.raises(ConfigError, match="no result"):
            engine.append_trace(path, stream)
        result = list(stream)[-1].result
        engine.append_trace(path, stream, category="chat", session="s", turn=turn)
    stream = engine.stream(PROMPT, max_tokens=9)
    raw = list(stream)[-1].result
    engine.append_trace(path, stream)
    silent = engine.stream(PROMPT, max_tokens=9, stop=(raw.text[0],))
    list(silent)
    engine.append_trace(path, silent)  # nothing was said: no line
    first, second, third = read_trace(path)
    assert len({first.id, second.id, third.id}) == 3
    assert (first.session, first.turn, second.session, second.turn) == ("s", 1, "s", 2)
    assert first.category == "chat"
    assert first.output == result.text
    # The template's control tokens are written out; what the message says of them stands beside.
    assert first.prompt == "<|user|>hello <|end|> world<|end|><|assistant|>"
    assert (third.category, third.prompt, third.output) == ("generate", PROMPT, raw.text)
    record = json.loads(path.read_text("utf-8").splitlines()[0])
    assert record["decoding"] == "temperature 0.7, top_p 0.9, seed 4"
    assert record["model"] == engine.description.name
    record = json.loads(path.read_text("utf-8").splitlines()[2])
    assert record["decoding"] == "temperature 0"
    assert "session" not in record
    assert "turn" not in record
