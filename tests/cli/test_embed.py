"""`akunu embed`: texts from arguments, files and pipes; JSON lines and arrays."""

import json
import subprocess

import numpy as np
import pytest
from akunu_runs import AKUNU, run
from tiny_architectures.embeddings import build_embedder

from akunu_py import Engine


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return build_embedder("qwen3-last").write(tmp_path_factory.mktemp("embedder") / "tiny.gguf")


@pytest.fixture(scope="module")
def vectors(model):
    with Engine.load(model) as engine:
        found = engine.embed(["a cat", "a dog", "3\n"])
    return found.tolist()


def piped(model, text, *options):
    done = subprocess.run(
        [*AKUNU, "embed", model, *options], input=text, capture_output=True, text=True, check=False
    )
    return [json.loads(line) for line in done.stdout.splitlines()] or done.stderr


def close(lines, ids, vectors):
    assert [line["id"] for line in lines] == ids
    np.testing.assert_allclose([line["embedding"] for line in lines], vectors, atol=1e-6)


def test_texts_files_and_json_lines(model, vectors, tmp_path):
    note, lines = tmp_path / "note.md", tmp_path / "lines.JSONL"
    note.write_text("3\n")
    lines.write_text('"a cat"\n\n{"id": "d", "text": "a dog"}\n')
    result = run("embed", model, "-t", "a cat", "--text", "a dog", note, lines, code=0)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    close(found, [0, 1, str(note), 3, "d"], [*vectors, *vectors[:2]])
    array = tmp_path / "array.npy"
    assert run("embed", model, lines, "-o", array, "--dimensions", 3, code=0).stdout == ""
    cut = np.array(vectors[:2])[:, :3]
    np.testing.assert_allclose(
        np.load(array), cut / np.linalg.norm(cut, axis=1)[:, None], atol=1e-6
    )


@pytest.mark.slow
def test_what_is_piped_in(model, vectors):
    close(piped(model, "a cat"), [0], vectors[:1])
    close(piped(model, "a cat\n\na dog\n", "--input", "lines"), [0, 1], vectors[:2])
    close(piped(model, '{"text": "a dog"}', "--input", "jsonl", "-"), [0], vectors[1:2])
    assert "standard input is empty" in piped(model, "")


@pytest.mark.parametrize(("content", "options", "words"), [
    ('"a"\n{"id": 3}', (), "line 2 of PATH is not a text; give a text, or an object such as"),
    ("[1]", (), "line 1 of PATH is not a text"),
    ("{", (), "line 1 of PATH is not JSON"),
    (" \n", (), "PATH is empty"),
    ('"a"\n' + json.dumps("word " * 300), (), "line 2 of PATH has 902 tokens and the context"),
    ('"a"', ("-o", "vectors.jsonl"), "--output is vectors.jsonl; name a file that ends with .npy"),
    ('"a"', ("-o", "absent/vectors.npy"), "--output is absent/vectors.npy; name a file"),
    ('"a"', ("--prompt-name", "x"), "--prompt-name is 'x', and the model's prompts are: query"),
    ('"a"', ("--dimensions", "65"), "dimensions is 65; this model's embeddings have 64"),
])  # fmt: skip
def test_texts_that_are_none(model, tmp_path, content, options, words):
    path = tmp_path / "texts.jsonl"
    path.write_text(content)
    said = run("embed", model, path, *options, code=2).stderr
    assert words.replace("PATH", str(path)) in said


def test_models_and_what_they_were_made_for(model, tiny_gguf):
    assert "was made for embeddings" in run("generate", model, "-p", "hello", code=2).stderr
    assert "pooling" in run("embed", tiny_gguf, "-t", "hello", code=2).stderr
    run("embed", tiny_gguf, "-t", "hello", "--pooling", "mean", code=0)
