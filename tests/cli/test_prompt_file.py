"""`akunu generate --prompts`: replies to the lines of a file, each as alone, resumed where it ended.

Mutants that die here: finished replies made again; a line that was cut off kept; a failed reply
written; a limit of one line used for all.
"""

import json

import pytest
from akunu_runs import ENDLESS, run

from akunu_py.cli.prompt_file import ReplyFile

CAT = {"id": "cat", "prompt": "a cat and a dog"}
CHAT = {"messages": [{"role": "user", "content": "hello world"}], "max_tokens": 3}
DOG = {"id": 7, "prompt": "one two one two"}


@pytest.fixture
def files(tmp_path):
    """A file of prompts, one of replies, and the words that ask for them."""
    prompts, output = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl"
    write(prompts, CAT, CHAT, DOG)
    return prompts, output, ("--prompts", prompts, "--output", output)


def write(path, *records):
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def replies(output):
    return {line["id"]: line for line in map(json.loads, output.read_text().splitlines())}


def alone(model, text, *options):
    record = json.loads(run("generate", model, "-p", text, "--json", *options, code=0).stdout)
    return {
        "text": record["text"], "finish_reason": record["finish_reason"], "seed": record["seed"],
        "usage": {
            "prompt_tokens": record["prompt_tokens"], "completion_tokens": len(record["token_ids"]),
        },
    }  # fmt: skip


@pytest.mark.parametrize("streams", [1, 8])
@pytest.mark.parametrize("more", [("--temperature", 0.8), ("--system", "be brief")])
def test_each_reply_is_the_one_alone(tiny_gguf, files, streams, more):
    _, output, both = files
    options = ("--seed", 3, "--max-tokens", 9, *ENDLESS, *more)
    result = run("generate", tiny_gguf, *both, "--streams", streams, *options, code=0)
    assert result.stdout == ""
    ended = "3 ended at --max-tokens or a full context"
    assert result.stderr == f"3 of 3 replies are in {output}; {ended}\n"
    assert replies(output) == {
        "cat": {"id": "cat", **alone(tiny_gguf, CAT["prompt"], *options)},
        2: {"id": 2, **alone(tiny_gguf, "hello world", *options, "--max-tokens", 3)},
        7: {"id": 7, **alone(tiny_gguf, DOG["prompt"], *options)},
    }
    assert next(iter(replies(output))) == (2 if streams == 8 else "cat")


def test_raw_prompts_are_continued(tiny_gguf, files):
    prompts, output, both = files
    write(prompts, CAT)
    options = ("--raw", "--seed", 3, "--max-tokens", 9)
    run("generate", tiny_gguf, *both, *options, code=0)
    assert replies(output) == {"cat": {"id": "cat", **alone(tiny_gguf, CAT["prompt"], *options)}}


@pytest.mark.parametrize("cut", [b"", b'{"i', b'{"id": 2, "text": "half of'])
def test_it_goes_on_where_it_ended(tiny_gguf, files, cut):
    prompts, output, both = files
    run("generate", tiny_gguf, *both, "--max-tokens", 2, code=0)
    kept = output.read_bytes().splitlines(keepends=True)[0]
    output.write_bytes(kept + cut)
    run("generate", tiny_gguf, *both, "--max-tokens", 1, code=0)
    assert output.read_bytes().startswith(kept)
    lengths = [one["usage"]["completion_tokens"] for one in replies(output).values()]
    assert sorted(replies(output), key=str) == [2, 7, "cat"]
    assert max(lengths[1:]) == 1
    before = output.read_bytes()
    run("generate", tiny_gguf, *both, code=0)
    assert output.read_bytes() == before


def test_a_failed_reply_is_named_and_tried_again(tiny_gguf, files):
    prompts, output, both = files
    write(prompts, CAT, {"id": "long", "prompt": "far too long " * 400}, DOG)
    for _ in range(2):
        result = run("generate", tiny_gguf, *both, "--max-tokens", 4, code=1)
        assert "prompts.jsonl, line 2: " in result.stderr
        assert "context" in result.stderr
        assert f"2 of 3 replies are in {output}; " in result.stderr
        assert "; the same command makes the others" in result.stderr
        assert set(replies(output)) == {"cat", 7}


def test_an_error_of_a_pass_is_that_of_its_line(tiny_gguf, files, monkeypatch):
    from akunu_py.models.session import Session

    _, output, both = files
    sound, calls = Session.commit, []

    def failing(*arguments):
        calls.append(0)
        if len(calls) == 1:
            raise RuntimeError("out of memory")
        sound(*arguments)

    monkeypatch.setattr(Session, "commit", failing)
    result = run("generate", tiny_gguf, *both, "--max-tokens", 4, code=1)
    assert "line 1: RuntimeError('out of memory')" in result.stderr
    assert set(replies(output)) == {2, 7}


def test_an_interrupt_keeps_what_is_finished(tiny_gguf, files, monkeypatch):
    _, output, both = files
    add = ReplyFile.add

    def interrupted(self, *reply):
        if self.ids:
            raise KeyboardInterrupt
        add(self, *reply)

    with monkeypatch.context() as patch:
        patch.setattr(ReplyFile, "add", interrupted)
        result = run("generate", tiny_gguf, *both, "--max-tokens", 4, code=130)
    assert f"1 of 3 replies are in {output}; the same" in result.stderr
    assert len(replies(output)) == 1
    run("generate", tiny_gguf, *both, "--max-tokens", 4, code=0)
    assert set(replies(output)) == {"cat", 2, 7}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[]", "an item is a JSON object"),
        ("{}", "give either prompt or messages"),
        ('{"prompt": " "}', "give either prompt or messages"),
        (json.dumps({**CAT, **CHAT}), "give either prompt or messages"),
        ('{"messages": []}', "messages"),
        ('{"messages": [{"role": "nobody", "content": "x"}]}', "role"),
        ('{"prompt": 3}', "field prompt: "),
        ('{"prompt": "x", "id": 1.5}', "field id: "),
        ('{"prompt": "x", "id": "cat"}', "an earlier line has the id 'cat'"),
        ('{"prompt": "x", "max_tokens": 0}', "max-tokens is 0"),
        ('{"prompt": "x", "temperature": 1}', "temperature"),
    ],
)
def test_a_bad_line_is_named_before_a_model_is_loaded(files, line, message):
    prompts, output, both = files
    prompts.write_text(f"{json.dumps(CAT)}\n\n{line}\n")
    result = run("generate", *both, code=2)
    assert "prompts.jsonl, line 3: " in result.stderr
    assert message in result.stderr
    assert not output.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--prompts", "p.jsonl"), "give --prompts and --output together"),
        (("--output", "o.jsonl"), "give --prompts and --output together"),
        (("BOTH", "-p", "x"), "--prompt is for one reply"),
        (("BOTH", "-f", "x"), "--file is for one reply"),
        (("BOTH", "--json"), "--json is for one reply"),
        (("BOTH", "who are you"), "give either a prompt or --prompts"),
        (("BOTH", "-"), "give either a prompt or --prompts"),
        (("BOTH", "--streams", 0), "--streams"),
    ],
)
def test_options_that_do_not_go_together(files, words, message):
    _, output, both = files
    words = [part for word in words for part in (both if word == "BOTH" else [word])]
    assert message in run("generate", *words, code=2).stderr
    assert not output.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"id": 1, "prompt": "x"}\n', "line 1 of "),
        ('{"id": 1, "finish_reason": "stop"}\nnotes\n', "line 2 of "),
        ("[]\n", "line 1 of "),
        ("notes", "the last line of "),
    ],
)
def test_a_file_of_something_else_stays_as_it_is(files, content, message):
    _, output, both = files
    output.write_text(content)
    result = run("generate", *both, code=2)
    assert message in result.stderr
    assert "is not a reply; give another file as --output" in result.stderr
    assert output.read_text() == content


def test_files_that_cannot_be_used(files, tmp_path):
    prompts, _, both = files
    elsewhere = ("--prompts", prompts, "--output", tmp_path / "no" / "o.jsonl")
    assert "cannot write" in run("generate", *elsewhere, code=2).stderr
    prompts.write_text("\n")
    assert "prompts.jsonl is empty" in run("generate", *both, code=2).stderr
    prompts.unlink()
    assert "cannot be read" in run("generate", *both, code=2).stderr
