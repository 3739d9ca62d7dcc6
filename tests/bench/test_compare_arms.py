"""The programs that `akunu bench compare` runs: what each decodes, and what the command says."""

import json
from importlib.resources import files
from importlib.util import find_spec
from types import SimpleNamespace

import jsonschema
import mlx.core as mx
import numpy as np
import pytest
from click.testing import CliRunner
from gguf_files import write_tiny_llama
from mlx import nn
from mlx_lm.models import llama
from tiny_models import prompt_of, tiny

from akunu_py import ConfigError, Engine
from akunu_py.bench.compare import llama_cpp_arms, transformers_arms
from akunu_py.bench.compare.akunu_arms import AKUNU
from akunu_py.bench.compare.arm import Recorder, Subject, UnavailableError, gather
from akunu_py.bench.compare.llama_cpp_arms import LLAMA_CPP, LlamaCppArm
from akunu_py.bench.compare.mlx_lm_arms import MLX_LM
from akunu_py.bench.compare.run import encode_items
from akunu_py.bench.compare.transformers_arms import TRANSFORMERS
from akunu_py.bench.result_file import BenchResult
from akunu_py.bench.workloads import Prompt
from akunu_py.cli.main import cli
from akunu_py.models.baseline import drafted_passes, plain_passes
from akunu_py.models.layers import FrequencyRope
from akunu_py.models.load import load_model
from akunu_py.models.plain_decoder import plain_decoder

PROMPT = tuple(range(5, 45)) * 2
NO_END = frozenset()

needs_llama_cpp = pytest.mark.skipif(
    find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed: akunu-py[compare]"
)
needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="torch is not installed: akunu-py[compare]"
)


@pytest.fixture(scope="module")
def draft_path(default_model):
    return default_model.with_name("akunu-tiny-draft.gguf")


@pytest.fixture(scope="module")
def loaded(draft_path):
    return load_model(draft_path)


@pytest.fixture(scope="module")
def engine(loaded):
    with Engine(loaded) as engine:
        yield engine


def subject_of(loaded, engine, **options):
    given = {
        "loaded": loaded, "context": 512, "longest": 200, "probe": PROMPT,
        "vocabulary_size": engine.vocabulary_size, "logits": engine.logits, "num_threads": 2,
        "drafters": ("ngram", "none"), "draft_budget": "always", **options,
    }  # fmt: skip
    return Subject(**given)


def decode(arm, prompt=PROMPT, max_tokens=24, end_ids=NO_END):
    recorder = Recorder(max_tokens, end_ids)
    arm.decode(prompt, recorder)
    return recorder.result()


def made(program, subject):
    arms, skipped = gather([program], subject)
    return {arm.name: arm for arm in arms}, {arm.name: arm.reason for arm in skipped}


class TestMlxLm:
    def test_a_pass_has_what_the_draft_model_guessed_and_one_more(self):
        target, draft = tiny(seed=3), tiny(seed=3)
        prompt = prompt_of(30)
        plain = [done.token_ids[0] for done in plain_passes(target, prompt, 12)]
        # The model as its own draft model: everything is accepted.
        passes = list(drafted_passes(target, draft, prompt, 12, 3))
        assert [token for done in passes for token in done.token_ids] == plain
        counts = [(len(d.token_ids), d.num_drafted, d.num_accepted) for d in passes]
        assert counts == [(4, 3, 3)] * 3
        # A pass that the end cuts off has no token of its own.
        cut = list(drafted_passes(target, draft, prompt, 10, 3))
        assert [(len(d.token_ids), d.num_drafted, d.num_accepted) for d in cut] == [
            (4, 3, 3), (4, 3, 3), (2, 2, 2),
        ]  # fmt: skip

    def test_a_draft_model_that_is_wrong_costs_no_token(self):
        target, draft = tiny(seed=3), tiny(seed=9)
        prompt = prompt_of(30)
        plain = [done.token_ids[0] for done in plain_passes(target, prompt, 12)]
        passes = list(drafted_passes(target, draft, prompt, 12, 2))
        assert [token for done in passes for token in done.token_ids] == plain
        assert all(len(done.token_ids) == done.num_accepted + 1 for done in passes[:-1])
        assert sum(done.num_accepted for done in passes) < sum(done.num_drafted for done in passes)

    def test_a_reply_can_be_left(self):
        passes = plain_passes(tiny(), prompt_of(30), 12)
        first = next(passes)
        passes.close()
        assert next(plain_passes(tiny(), prompt_of(30), 12)) == first

    def test_arms(self, loaded, engine, tiny_gguf):
        arms, skipped = made(MLX_LM, subject_of(loaded, engine))
        assert list(arms) == ["mlx-lm-plain"]
        assert "--draft-model" in skipped["mlx-lm-draft"]
        other = load_model(tiny_gguf)
        _, skipped = made(MLX_LM, subject_of(loaded, engine, draft_model=other))
        assert "another vocabulary" in skipped["mlx-lm-draft"]
        arms, skipped = made(MLX_LM, subject_of(loaded, engine, draft_model=loaded))
        assert not skipped
        assert decode(arms["mlx-lm-draft"]).num_accepted > 10


class TestAkunu:
    def test_all_programs_here_decode_the_same_tokens(self, loaded, engine):
        subject = subject_of(loaded, engine, drafters=("ngram", "draft-model"), draft_model=loaded)
        arms = {**made(AKUNU, subject)[0], **made(MLX_LM, subject)[0]}
        replies = {name: decode(arm) for name, arm in arms.items()}
        assert set(replies) == {
            "akunu-plain", "akunu-ngram", "akunu-draft-model", "mlx-lm-plain", "mlx-lm-draft",
        }  # fmt: skip
        assert len({found.token_ids for found in replies.values()}) == 1
        plain = replies["akunu-plain"]
        assert (plain.num_first, plain.num_passes, plain.num_drafted) == (1, 23, 0)
        drafting = replies["akunu-draft-model"]
        assert drafting.num_passes < 10
        assert drafting.num_accepted == len(drafting.token_ids) - drafting.num_first - (
            drafting.num_passes
        )
        for arm in arms.values():
            arm.close()

    def test_nothing_is_left_of_a_reply(self, loaded, engine, monkeypatch):
        resets = []
        reset = Engine.reset
        monkeypatch.setattr(Engine, "reset", lambda engine: (resets.append(1), reset(engine)))
        arms, _ = made(AKUNU, subject_of(loaded, engine, drafters=("auto",)))
        # A reply that auto remembered would be copied from, in fewer passes.
        first, second = (decode(arms["akunu-auto"], tuple(range(40, 70))) for _ in range(2))
        assert (second.num_passes, second.num_drafted) == (first.num_passes, first.num_drafted)
        assert first.num_passes > 3
        assert len(resets) == 2

    def test_an_end_ends_all(self, loaded, engine):
        subject = subject_of(loaded, engine)
        plain = made(MLX_LM, subject)[0]["mlx-lm-plain"]
        whole = decode(plain).token_ids
        end = frozenset({whole[5]})
        cut = whole[: whole.index(whole[5]) + 1]
        assert decode(plain, end_ids=end).token_ids == cut
        assert decode(made(AKUNU, subject)[0]["akunu-ngram"], end_ids=end).token_ids == cut

    def test_names_and_reasons(self, loaded, engine):
        arms, skipped = made(AKUNU, subject_of(loaded, engine, drafters=("none", "draft-model")))
        assert list(arms) == ["akunu-plain"]
        assert "--draft-model" in skipped["akunu-draft-model"]
        arms, _ = made(AKUNU, subject_of(loaded, engine, draft_budget="auto"))
        assert [arm.steady for arm in arms.values()] == [True, False]
        arms, _ = made(AKUNU, subject_of(loaded, engine))
        assert [arm.steady for arm in arms.values()] == [True, True]


class FakeLlama:
    """What `llama_cpp.Llama.generate` does, over a text that is known."""

    def __init__(self, text, lookup=None):
        self.text = text
        self.lookup = lookup
        self.resets = 0

    def reset(self):
        self.resets += 1

    def generate(self, tokens, **options):
        assert options == {"temp": 0.0, "repeat_penalty": 1.0}
        yield self.text[0]
        place = 1
        while True:
            drafted = () if self.lookup is None else self.lookup(np.array(self.text[:place]))
            for guess in [*drafted, None]:
                yield self.text[place]
                place += 1
                if guess != self.text[place - 1]:
                    break


class TestLlamaCpp:
    def test_passes_are_told_from_when_the_lookup_was_asked(self):
        text = (1, 2, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9)
        drafts = {4: (2, 3, 1), 7: (5,)}
        lookup = llama_cpp_arms._Counted(lambda ids: drafts.get(len(ids), ()))
        arm = LlamaCppArm.__new__(LlamaCppArm)
        arm._llama, arm._lookup = FakeLlama(text, lookup), lookup
        found = decode(arm, max_tokens=9)
        assert found.token_ids == text[:9]
        # 2 | 3 | 1 | 2 3 4 | 5 6: five passes behind the first.
        assert (found.num_first, found.num_passes) == (1, 5)
        assert (found.num_drafted, found.num_accepted) == (4, 3)
        assert arm._llama.resets == 1
        arm._lookup = arm._llama.lookup = None
        assert decode(arm, max_tokens=9).num_passes == 8

    def test_a_folder_is_no_gguf_file(self, loaded, engine, tmp_path):
        folder = SimpleNamespace(description=SimpleNamespace(path=tmp_path))
        _, skipped = made(LLAMA_CPP, subject_of(folder, engine))
        assert set(skipped) == {"llama.cpp-plain", "llama.cpp-lookup"}
        assert "GGUF" in skipped["llama.cpp-plain"]

    @pytest.mark.skipif(find_spec("llama_cpp") is not None, reason="llama-cpp-python is installed")
    def test_absent(self, loaded, engine):
        _, skipped = made(LLAMA_CPP, subject_of(loaded, engine))
        assert "pip install 'akunu-py[compare]'" in skipped["llama.cpp-lookup"]

    @needs_llama_cpp
    def test_replies(self, loaded, engine):
        subject = subject_of(loaded, engine)
        arms, skipped = made(LLAMA_CPP, subject)
        assert not skipped
        plain, lookup = decode(arms["llama.cpp-plain"]), decode(arms["llama.cpp-lookup"])
        akunu = decode(made(AKUNU, subject)[0]["akunu-plain"])
        # Its activations have 8 bits, so that ties may fall otherwise, but not at once.
        assert plain.token_ids[:4] == lookup.token_ids[:4] == akunu.token_ids[:4]
        assert plain.num_passes == 23
        assert lookup.num_passes + lookup.num_accepted == pytest.approx(23, abs=1)


def logits_of(decoder, tokens):
    """Logits of mlx-lm's own class with a decoder's numbers, its halves of heads rotating."""
    arguments = {"model_type": "llama", "rope_traditional": False, **decoder.config}
    model = llama.Model(llama.ModelArgs(**arguments))
    wavelengths = mx.array(1 / decoder.inverse_frequencies)
    for layer in model.layers:
        layer.self_attn.rope = FrequencyRope(
            decoder.config["head_dim"], wavelengths, traditional=False
        )
    model.load_weights([(path, mx.array(array)) for path, array in decoder.arrays.items()])
    return np.array(model(mx.array(tokens)[None])[0])


class TestPlainDecoder:
    @pytest.mark.parametrize("quantization", ["F32", "Q8_0"])
    def test_its_numbers_are_the_models(self, tmp_path, quantization):
        path = write_tiny_llama(tmp_path / "x.gguf", tied=False, seed=5, quantization=quantization)
        loaded = load_model(path)
        decoder = plain_decoder(loaded.model)
        assert loaded.model.args.rope_traditional
        assert decoder.model_type == "llama"
        assert decoder.float32
        theirs = logits_of(decoder, PROMPT)
        ours = np.array(loaded.model(mx.array(PROMPT)[None])[0])
        assert np.abs(theirs - ours).max() < 1e-4 * ours.std()

    def test_quantized_layers_are_expanded_and_left_alone(self):
        model = tiny(hidden_size=64, rope_traditional=True)
        dense = plain_decoder(model)
        quantized = tiny(hidden_size=64, rope_traditional=True)
        nn.quantize(quantized, group_size=32, bits=8)
        before = quantized.layers[0].mlp.up_proj
        expanded = plain_decoder(quantized)
        assert set(expanded.arrays) == set(dense.arrays)
        for path, array in expanded.arrays.items():
            assert array.dtype == np.float32
            assert np.abs(array - dense.arrays[path]).max() < 0.02 * np.abs(array).max() + 1e-6
        assert quantized.layers[0].mlp.up_proj is before

    def test_what_cannot_be_handed_over(self):
        model = tiny()
        model.layers[0].self_attn.rope = FrequencyRope(16, mx.ones(8), traditional=False, scale=2.0)
        with pytest.raises(ConfigError, match="FrequencyRope"):
            plain_decoder(model)
        model.layers[0].self_attn.rope = FrequencyRope(8, mx.ones(4), traditional=False)
        with pytest.raises(ConfigError, match="8 of 16"):
            plain_decoder(model)
        sliding = tiny(layer_types=["sliding_attention", "full_attention"], sliding_window=16)
        with pytest.raises(ConfigError, match="sliding"):
            plain_decoder(sliding)
        with pytest.raises(ConfigError, match="not among"):
            plain_decoder(nn.Linear(2, 2))

    def test_frequencies(self):
        model = tiny(rope_theta=100.0)
        assert plain_decoder(model).inverse_frequencies == pytest.approx(
            100.0 ** -(np.arange(8) / 8)
        )
        model.layers[0].self_attn.rope = FrequencyRope(16, mx.arange(1, 9), traditional=False)
        assert plain_decoder(model).inverse_frequencies == pytest.approx(1 / np.arange(1, 9))


class TestTransformers:
    @pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed")
    def test_absent(self, loaded, engine):
        _, skipped = made(TRANSFORMERS, subject_of(loaded, engine))
        assert "pip install 'akunu-py[compare]'" in skipped["transformers-plain"]

    @needs_torch
    def test_replies(self, loaded, engine):
        subject = subject_of(loaded, engine)
        arms, skipped = made(TRANSFORMERS, subject)
        assert not skipped
        plain, lookup = decode(arms["transformers-plain"]), decode(arms["transformers-lookup"])
        akunu = decode(made(AKUNU, subject)[0]["akunu-plain"])
        assert plain.token_ids == lookup.token_ids == akunu.token_ids
        assert (plain.num_passes, plain.num_drafted) == (23, 0)
        assert lookup.num_passes < 23
        assert lookup.num_timed == lookup.num_passes + lookup.num_accepted
        end = frozenset({plain.token_ids[5]})
        cut = plain.token_ids[: plain.token_ids.index(plain.token_ids[5]) + 1]
        assert decode(arms["transformers-lookup"], end_ids=end).token_ids == cut

    @needs_torch
    def test_another_models_logits_are_refused(self, loaded, engine):
        subject = subject_of(loaded, engine, logits=lambda ids: -engine.logits(ids))
        with pytest.raises(UnavailableError, match="would not be the same model"):
            transformers_arms.make_arms(subject)


def command(*arguments):
    result = CliRunner().invoke(cli, ["bench", "compare", *map(str, arguments)])
    return result.exit_code, result.output


def test_the_command(draft_path, tmp_path):
    options = [
        draft_path, "--program", "mlx-lm", "--drafter", "ngram", "--draft-model", draft_path,
        "--category", "config", "--quick", "--limit", 1, "--max-tokens", 8, "--draft-budget", "always",
        "--context", 1024, "--output", tmp_path / "out", "--json",
    ]  # fmt: skip
    code, output = command(*options)
    assert code == 0
    record = json.loads(output.splitlines()[-1])
    schema = files("akunu_py.bench").joinpath("result.schema.json").read_text()
    jsonschema.validate(record, json.loads(schema))
    result = BenchResult.from_dict(record)
    assert result.command == "compare"
    assert result.arguments["drafters"] == ["ngram"]
    assert len(result.model.sha256) == 64
    assert result.costs.costs[1] > 0
    total = result.deterministic["total"]
    assert list(total) == ["akunu-plain", "akunu-ngram", "mlx-lm-plain", "mlx-lm-draft"]
    assert len({arm["token_ids_sha256"] for arm in total.values()}) == 1
    assert all(arm["differing_from_akunu"] == 0 for arm in total.values())
    assert result.timing["ratios"]["akunu-ngram/mlx-lm-plain"]["pairs"] == 1
    assert len(result.items) == 1
    kept = (tmp_path / "out" / "items.jsonl").read_text()
    assert (tmp_path / "out" / "speed.csv").is_file()
    # The same command goes on from what is there: nothing is decoded again.
    code, output = command(*options)
    assert code == 0
    again = BenchResult.from_dict(json.loads(output.splitlines()[-1]))
    assert again.items == result.items
    assert again.costs == result.costs
    assert again.deterministic == result.deterministic
    assert (tmp_path / "out" / "items.jsonl").read_text() == kept


def test_prompts_that_do_not_fit_are_failures(loaded):
    prompts = [Prompt("long", "edit", "raw", "word " * 999), Prompt("good", "edit", "raw", "x = 1")]
    items, failures = encode_items(loaded.tokenizer, prompts, 100)
    assert [item.id for item in items] == ["good"]
    assert failures[0].item == "long"
    assert "100 leave room" in failures[0].error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kv-bits", "8"], "--kv-bits has no counterpart"),
        (["--reproducible"], "--reproducible has no counterpart"),
        (["--drafter", "magic"], "no drafter 'magic'"),
        (["--program", "ollama"], "ollama"),
    ],
)
def test_mistakes_of_the_caller(arguments, words):
    code, output = command(*arguments)
    assert code == 2
    assert words in " ".join(output.split())
