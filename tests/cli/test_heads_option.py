"""`--heads`, `--drafter mtp` and `--draft-model` as a user meets them."""

import json
import shutil

import pytest
from akunu_runs import ENDLESS, run
from eagle_heads import random_eagle
from family_models import Variant, build_family
from gguf_drafters import gguf_of_eagle, write_drafter
from gguf_files import write_tiny_llama
from hub_server import add_to_cache
from markov_heads import write_headed_folder
from model_folders import write_family_folder

from akunu_py.bench.hit_rate import run_hit_rate
from akunu_py.bench.runner import Item
from akunu_py.bench.speed import run_speed
from akunu_py.bench.workloads import Prompt
from akunu_py.cli.loading_options import LoadingOptions, _with_drafting_models
from akunu_py.engine.engine import Engine
from akunu_py.model_store.known_models import KNOWN_MODELS
from akunu_py.models.nearby_heads import find_nearby_head
from akunu_py.system.errors import ConfigError

PROMPT = ["--raw", "-p", "hello world", "--max-tokens", "12"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_headed_folder(tmp_path_factory.mktemp("headed") / "model")


def reply(*arguments):
    result = run("generate", *arguments, *PROMPT, "AKUNU_DRAFT_BUDGET=always", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    "options",
    [["--drafter", "mtp"], ["--heads", "own"], ["--heads", "auto"], ["--heads", "FOLDER"]],
    ids=str,
)
def test_a_reply_with_a_head_is_the_same_reply(folder, options):
    plain = reply(folder, "--drafter", "none")
    drafted = reply(folder, *(folder if word == "FOLDER" else word for word in options))
    assert drafted["token_ids"] == plain["token_ids"]
    assert drafted["stats"]["drafted"] > 5
    assert drafted["stats"]["accepted"] == drafted["stats"]["drafted"]


def test_what_is_wrong_is_said(folder, tiny_gguf, tmp_path):
    for arguments, words in [
        ([tiny_gguf, "--drafter", "mtp"], "comes without a prediction head; name a file"),
        ([folder, "--heads", tmp_path / "nowhere"], "nowhere does not exist; give a GGUF"),
        ([folder, "--heads", tiny_gguf], "has no prediction head for this model"),
    ]:
        result = run("generate", *arguments, *PROMPT)
        assert result.exit_code != 0
        assert words in " ".join(result.output.split())
    result = run("chat", folder, input="/draft mtp\n")
    assert "mtp needs a prediction head; begin with --heads own" in result.output


def test_chat_takes_one_too(folder):
    result = run("chat", folder, "--heads", "own", "--max-tokens", "5", input="/draft\nhello\n")
    assert result.exit_code == 0, result.output
    assert "drafter auto, the default" in result.output


def test_show_says_whether_there_is_one(folder, tiny_gguf):
    assert "heads          yes, --heads own loads it" in run("models", "show", folder).output
    assert "heads          no" in run("models", "show", tiny_gguf).output
    record = json.loads(run("models", "show", folder, "--json").stdout)
    assert record["prediction_head"] is True


def test_measurements_have_a_line_for_it(folder):
    options = {"drafters": ["none", "mtp"], "max_tokens": 12, "with_costs": False}
    with Engine.load(folder) as engine:
        item = Item("one", "edit", "one", tuple(engine.tokenizer.encode("hello world, hello")))
        with pytest.raises(ConfigError, match="mtp needs a prediction head"):
            run_speed(engine, [item], **options)
    with Engine.load(folder, heads="own") as engine:
        replies = run_speed(engine, [item], **options).runs[0].replies
        assert list(replies) == ["mlx-lm", "none", "mtp"]
        assert len({reply.token_ids for reply in replies.values()}) == 1
        prompts = [Prompt("one", "edit", "raw", text="hello world")]
        report = run_hit_rate(engine, prompts, drafter="mtp", max_tokens=8)
        assert report.config.drafter == "mtp"


@pytest.fixture(scope="module")
def eagle():
    """A llama without a head, and the tensors and keys of one for it."""
    target = build_family(Variant("llama", changes=(("vocab_size", 257),)))
    return gguf_of_eagle(random_eagle(target))


def test_on_several_machines_auto_takes_none_and_says_so(folder, capsys):
    loading = LoadingOptions(heads="auto")
    assert _with_drafting_models(loading, folder, object()).heads is None
    assert "on several machines drafts come from the text" in capsys.readouterr().err
    assert _with_drafting_models(loading, folder, None).heads == "own"


def test_auto_takes_a_head_that_lies_near_and_says_which(eagle, tmp_path, tiny_gguf, hub_cache):
    said = []

    def taken(model):
        said.clear()
        found = find_nearby_head(model, said.append)
        return found if found in (None, "own") else found.name

    folder = write_family_folder(tmp_path / "Model-Q8_0", "llama")
    assert (taken(folder), said) == (
        None,
        [f"drafting without a head: none is in or beside {folder.name}, nor in the cache"],
    )
    # In the folder: files of other models, damaged files and heads of other models are left out.
    shutil.copy(tiny_gguf, folder / "a.gguf")
    (folder / "b.gguf").write_bytes(b"GGUF")
    tensors, keys = eagle
    write_drafter(folder / "c.gguf", tensors, keys | {"target_layers": [0, 1, 40]})
    assert taken(folder) is None
    assert "not drafting with the head in" in said[0]
    assert "eagle3.target_layers is '[0, 1, 40]'" in said[0]
    write_drafter(folder / "d.gguf", *eagle)
    assert taken(folder) == "d.gguf"
    assert said[-1] == f"drafting with the head in {folder / 'd.gguf'}"
    # A model's own comes first.
    assert taken(write_headed_folder(tmp_path / "headed")) == "own"
    # Beside a file: a head that is called as the model, whatever their quantizations.
    model = tmp_path / "files" / "Tiny-Q4_K_M.gguf"
    model.parent.mkdir()
    shutil.copy(tiny_gguf, model)
    write_drafter(model.parent / "eagle3-Other-Q8_0.gguf", *eagle)
    assert taken(model) is None
    assert len(said) == 1
    write_drafter(model.parent / "eagle3-tiny-Q8_0.gguf", *eagle)
    assert taken(model) is None
    assert "eagle3-tiny-Q8_0.gguf: the prediction head in" in said[0]
    # In the cache, for a model that the table of short names knows a head of.
    known = KNOWN_MODELS["qwen3:4b"]
    snapshot = add_to_cache(hub_cache, known.repository, {"a.txt": b""})
    shutil.copytree(write_family_folder(tmp_path / "again", "llama"), snapshot, dirs_exist_ok=True)
    add_to_cache(
        hub_cache, known.head.repository, {"eagle3.gguf": (folder / "d.gguf").read_bytes()}
    )
    assert taken(snapshot) == "eagle3.gguf"


SHORT = [*ENDLESS, "--max-tokens", "12"]
RAW = ["--raw", "-p", "hello world"]


def json_reply(*arguments):
    result = run("generate", *arguments, *RAW, *SHORT, "AKUNU_DRAFT_BUDGET=always", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("sampling", [[], ["--temp", "0.8", "--seed", "3"]])
@pytest.mark.parametrize(
    "drafter",
    [
        [],
        pytest.param(
            ["--drafter", "draft-model", "--draft-temperature", "0.3"], marks=pytest.mark.lab
        ),
        pytest.param(["--drafter", "draft-model-ngram"], marks=pytest.mark.lab),
    ],
)
def test_a_reply_with_a_draft_model_is_the_same_reply(tiny_gguf, sampling, drafter):
    plain = json_reply(tiny_gguf, *sampling, "--drafter", "none")
    drafted = json_reply(tiny_gguf, "--draft-model", tiny_gguf, *sampling, *drafter)
    assert drafted["token_ids"] == plain["token_ids"]
    assert drafted["stats"]["exactness"] == "stream"
    assert drafted["stats"]["drafted"] > 5


def test_another_vocabulary(tiny_gguf, tmp_path):
    other = write_tiny_llama(tmp_path / "spm.gguf", vocabulary="spm")
    result = run("generate", tiny_gguf, "--draft-model", other, *RAW)
    assert result.exit_code != 0
    assert "the draft model has another vocabulary: id 0 is" in result.output


def test_chat_takes_a_draft_model_too(tiny_gguf):
    run("chat", tiny_gguf, "--draft-model", tiny_gguf, *SHORT, input="hello\n", code=0)
