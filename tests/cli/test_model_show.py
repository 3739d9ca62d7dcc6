"""`akunu models show`, and models by name where they are loaded: figures, refusals, bad paths."""

import json
import os

import pytest
from akunu_runs import run as run_akunu
from click.testing import CliRunner
from gguf_files import drawn, write_adapter, write_tiny_llama
from hub_server import add_to_cache

from akunu_py.cli.main import cli
from akunu_py.engine.engine import Engine
from akunu_py.models.memory_check import PROGRAM_BYTES
from akunu_py.models.requirements import requirements
from akunu_py.models.weight_files import tensor_class

GENERATE = ("generate", "--raw", "-p", "hello", "--max-tokens", "2")


def run(*arguments, code=0):
    return run_akunu(*arguments, code=code).output


def record_of(*arguments):
    return json.loads(run("models", "show", "--json", *arguments))


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    path = write_tiny_llama(folder / "m-Q8_0.gguf", quantization="Q8_0", width=256, tied=False)
    run("models", "convert", path, folder / "mlx")
    return folder / "mlx"


def test_show_a_gguf_file(hub_cache, converted):
    path = converted.parent / "m-Q8_0.gguf"
    record = record_of(path, "--context", "100")
    needs = requirements(path)
    assert record["kind"] == "GGUF"
    assert (record["architecture"], record["context_length"]) == ("llama", 256)
    assert record["parameters"] == needs.parameters
    assert record["file_bytes"] == path.stat().st_size
    assert record["chat_template"] is True
    assert [(need["context"], need["kv"]) for need in record["memory"]] == [
        (100, "32 bit"), (100, "8 bit"), (100, "4 bit"),
    ]  # fmt: skip
    assert [need["total_bytes"] for need in record["memory"]] == [
        needs.total_bytes(100, kv_bits=bits) + PROGRAM_BYTES for bits in (None, 8, 4)
    ]
    assert all(need["fits"] for need in record["memory"])
    assert record["rollback"] == ["by length"]
    classes = {(group["class"], group["type"]): group for group in record["quantization"]}
    assert set(classes) == {
        ("embedding", "Q8_0"), ("output", "Q8_0"), ("attention", "Q8_0"), ("feed-forward", "Q8_0"),
        ("norms", "F32"),
    }  # fmt: skip
    assert classes["attention", "Q8_0"]["tensors"] == 8
    assert sum(group["share"] for group in classes.values()) == pytest.approx(1)
    beyond = "--context is 257; this model allows up to 256 tokens"
    for more in ([], ["--json"], ["--ranks", 2]):
        assert beyond in run("models", "show", path, "--context", 257, *more, code=2)
    assert {need["context"] for need in record_of(path, "--context", 256)["memory"]} == {256}
    text = run("models", "show", path)
    assert "  256 tokens, 32 bit caches" in text
    assert "tokenizer      gpt2 llama-bpe" in text
    assert text.count("  fits\n") == 3


def test_show_folders(hub_cache, converted, tmp_path):
    record = record_of(converted)
    assert record["kind"] == "MLX folder, converted from GGUF"
    assert record["name"] == converted.name
    assert record["memory"][0]["context"] == 256
    files = {place.name: place.read_bytes() for place in converted.iterdir()}
    own = {"akunu.json", "akunu.safetensors", "metadata.gguf"}
    plain = {name: content for name, content in files.items() if name not in own}
    add_to_cache(hub_cache, "o/some-model", plain)
    hub = record_of("hf:o/some-model")
    assert (hub["kind"], hub["name"]) == ("MLX folder", "some-model")
    assert hub["chat_template"] is True
    assert hub["vocabulary"] == record["vocabulary"]
    types = {group["class"]: group["type"] for group in hub["quantization"]}
    assert types["attention"] == types["embedding"] == "8 bit, groups of 32"
    attention = next(group for group in hub["quantization"] if group["class"] == "attention")
    assert attention["tensors"] == 8
    # The whole of what the files hold but for their headers.
    held = sum(group["bytes"] for group in hub["quantization"])
    weights = sum(len(plain[name]) for name in plain if name.endswith(".safetensors"))
    assert weights - 20_000 < held < weights


def test_does_not_fit(hub_cache, converted, machine_memory):
    path = converted.parent / "m-Q8_0.gguf"
    machine_memory(requirements(path).weights_bytes)
    assert run("models", "show", path).count("too much") == 3


def test_refusal_before_loading(hub_cache, tiny_gguf, monkeypatch, machine_memory):
    machine_memory(1000)
    loaded = []
    load = Engine.load
    monkeypatch.setattr(Engine, "load", lambda *a, **o: loaded.append(a) or load(*a, **o))
    output = run(*GENERATE, tiny_gguf, code=2)
    assert "tiny.gguf needs about 0.2 GB (" in output
    for part in ("the weights of tiny.gguf", "its cache of 256 tokens", "the largest pass"):
        assert part in output
    assert "this machine has 0.0 MB" in output
    assert loaded == []
    run(*GENERATE, tiny_gguf, "--force")
    assert len(loaded) == 1


def test_a_draft_model_counts_with_the_model(hub_cache, tiny_gguf, tmp_path, machine_memory):
    draft = write_tiny_llama(tmp_path / "draft.gguf", width=256, seed=4)
    needs = [requirements(path) for path in (tiny_gguf, draft)]
    kept = sum(need.weights_bytes + need.cache_bytes(256) for need in needs)
    both = kept + max(need.working_bytes(256) for need in needs) + PROGRAM_BYTES
    # Each would fit alone.
    machine_memory(both - 1)
    run(*GENERATE, tiny_gguf)
    run(*GENERATE, draft)
    output = run(*GENERATE, tiny_gguf, "--draft-model", draft, code=2)
    assert "tiny.gguf and draft.gguf need about" in output
    assert "the weights of draft.gguf" in output
    machine_memory(both)
    run(*GENERATE, tiny_gguf, "--draft-model", draft)


@pytest.mark.parametrize(
    "command",
    [
        "speed",
        "hit-rate",
        pytest.param("compare", marks=pytest.mark.lab),
        pytest.param("alpha", marks=pytest.mark.lab),
    ],
)
def test_benchmarks_refuse_too(
    hub_cache, tiny_gguf, tmp_path, command, monkeypatch, machine_memory
):
    class LoadedError(Exception):
        pass

    def load(*_arguments, **_options):
        raise LoadedError

    monkeypatch.setattr("akunu_py.models.load.load_model", load)
    monkeypatch.setattr(Engine, "load", load)
    machine_memory(1000)
    draft = ["--draft-model", tiny_gguf] if command != "hit-rate" else []
    arguments = ["bench", command, tiny_gguf, *draft]
    assert "the weights of tiny.gguf" in run(*arguments, code=2)
    if command == "compare":
        # Each program loads in a process of its own, which knows nothing of `load` here.
        return
    result = CliRunner().invoke(cli, list(map(str, [*arguments, "--force"])))
    assert isinstance(result.exception, LoadedError)


def broken_paths(folder):
    (folder / "empty").mkdir()
    (folder / "loop.gguf").symlink_to(folder / "loop.gguf")
    os.mkfifo(folder / "pipe.gguf")
    (folder / "text.gguf").write_text("this is a text")
    (folder / "cut.gguf").write_bytes(b"GGUF\3\0\0\0")
    (folder / "config").mkdir(exist_ok=True)
    (folder / "unsafe").mkdir()
    (folder / "unsafe" / "config.json").write_text('{"model_type": "llama"}')
    return {
        "empty": (1, "no config.json"),
        "loop.gguf": (2, "circular link"),
        "pipe.gguf": (2, "regular file"),
        "text.gguf": (1, "not a GGUF file"),
        "cut.gguf": (1, "byte 8"),
        "unsafe": (1, "no model*.safetensors"),
        "gone.gguf": (2, "there is no model"),
        "../../x": (2, "there is no model named ../../x"),
        "hf:../../x": (2, "is not a model on the hub"),
    }


def test_paths_that_are_no_model(hub_cache, tmp_path, monkeypatch):
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "deeper")
    for name, (code, words) in broken_paths(tmp_path).items():
        path = name if ".." in name else tmp_path / name
        assert words in run("models", "show", path, code=code)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("token_embd.weight", "embedding"),
        ("model.embed_tokens.weight", "embedding"),
        ("output.weight", "output"),
        ("lm_head.weight", "output"),
        ("output_norm.weight", "norms"),
        ("blk.0.attn_q.weight", "attention"),
        ("blk.0.attn_output.weight", "attention"),
        ("blk.0.attn_q_norm.weight", "norms"),
        ("model.layers.0.self_attn.q_proj.weight", "attention"),
        ("blk.0.ffn_down_exps.weight", "experts"),
        ("blk.0.ffn_gate_inp.weight", "router"),
        ("blk.0.ffn_up_shexp.weight", "shared experts"),
        ("model.layers.1.mlp.switch_mlp.up_proj.weight", "experts"),
        ("model.layers.1.mlp.gate.weight", "router"),
        ("model.layers.1.mlp.gate_proj.weight", "feed-forward"),
        ("blk.0.ffn_up.weight", "feed-forward"),
        ("blk.0.ssm_a", "state space"),
        ("model.layers.0.input_layernorm.weight", "norms"),
        ("rope_freqs.weight", "other"),
    ],
)
def test_classes_of_tensors(name, kind):
    assert tensor_class(name) == kind


def test_an_adapter_is_shown_counted_and_given_once(tmp_path, converted):
    path = converted.parent / "m-Q8_0.gguf"
    adapter = write_adapter(
        tmp_path / "a.gguf", "llama", {"blk.0.attn_q.weight": drawn((256, 256))}
    )
    half = f"{adapter}:0.5"
    assert record_of(path)["adapter"] is None
    record = record_of(path, "--adapter", half)
    way = "beside" if record["weights"] == "quantized" else "merged into"
    assert record["adapter"] == {
        "name": "a:0.5", "kind": "GGUF, LoRA of rank 3", "layers": 1, "way": f"{way} them",
    }  # fmt: skip
    more = record["weights_bytes"] - record_of(path)["weights_bytes"]
    assert more == (4 * 2 * 3 * 256 if way == "beside" else 0)
    line = f"a:0.5 (GGUF, LoRA of rank 3), changes 1 layers, {way} them"
    assert line in run("models", "show", path, "--adapter", half)
    assert "several machines" in run(
        "models", "show", path, "--adapter", half, "--ranks", 2, code=2
    )
    run(*GENERATE, "-m", path, "--adapter", half)
    twice = run(*GENERATE, "-m", path, "--adapter", half, f"--lora={adapter}", code=2)
    assert "--adapter is given 2 times; a model takes one adapter" in twice
    wrong = write_adapter(tmp_path / "b.gguf", "llama", {"blk.7.attn_q.weight": drawn((8, 8))})
    assert "blk.7.attn_q.weight is not a layer of it" in run(
        *GENERATE, "-m", path, "--adapter", wrong, code=2
    )
