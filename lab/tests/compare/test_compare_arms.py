"""The programs that `akunu bench compare` runs: what each decodes, and what the command says."""

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec

import mlx.core as mx
import numpy as np
import pytest
from click.testing import CliRunner
from gguf_files import write_tiny_llama
from mlx import nn
from mlx_lm.models import llama
from tiny_models import prompt_of, tiny
from whole_numbers import LEEWAY

from akunu_lab.compare import run, transformers_arms
from akunu_lab.compare.arm import ComparedModel, Skipped, UnavailableError
from akunu_lab.compare.drafted_loop import drafted_passes
from akunu_lab.compare.llama_cpp_arms import LLAMA_CPP, MODES, PLAIN, LlamaCppArm
from akunu_lab.compare.mlx_lm_arms import MLX_LM
from akunu_lab.compare.plain_decoder import plain_decoder
from akunu_lab.compare.run import CompareOptions
from akunu_lab.compare.transformers_arms import TRANSFORMERS
from akunu_lab.install import install_command
from akunu_py import ConfigError, Engine
from akunu_py.bench.result_file import BenchResult
from akunu_py.bench.runner import Item
from akunu_py.cli.main import cli
from akunu_py.models.expansion import dense_arrays
from akunu_py.models.layers import FrequencyRope
from akunu_py.models.mlx_lm_loop import PlainLoop
from akunu_py.system.errors import ContractError

PROMPT = tuple(range(5, 45)) * 2
NO_END = frozenset()

needs_llama_cpp = pytest.mark.skipif(
    find_spec("xllamacpp") is None, reason="xllamacpp, of the extra compare, is not installed"
)
needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="torch, of the extra compare, is not installed"
)


@pytest.fixture(scope="module")
def draft_path(default_model):
    return default_model.with_name("akunu-tiny-draft.gguf")


@pytest.fixture(scope="module")
def engine(draft_path):
    with Engine.load(draft_path, context=512) as engine:
        yield engine


@pytest.fixture(scope="module")
def drafting(draft_path):
    """An engine whose draft model is its own."""
    with Engine.load(draft_path, context=512, draft_model=draft_path) as engine:
        yield engine


def subject_of(engine, **options):
    given = {
        "path": engine.description.path, "longest": 200, "probe": PROMPT, "max_tokens": 24,
        "end_ids": NO_END, "logits": engine.logits(PROMPT), **options,
    }  # fmt: skip
    return ComparedModel(**given)


def decode(arm, prompt=PROMPT):
    return arm.reply(Item("i", "edit", "s", prompt))


def made(program, subject):
    """Make a program's arms in this process."""
    return sorted_out(program.make(subject))


def akunu_arms(engine, drafters=("ngram", "none"), draft_budget="always", max_tokens=24):
    options = CompareOptions(drafters=drafters, draft_budget=draft_budget, max_tokens=max_tokens)
    arms, skipped = run._own_arms(engine, engine.sibling(), options)
    return sorted_out([*arms, *skipped])


def sorted_out(made):
    """Return arms by name, and the reasons of those that were skipped."""
    skipped = {arm.name: arm.reason for arm in made if isinstance(arm, Skipped)}
    return {arm.name: arm for arm in made if not isinstance(arm, Skipped)}, skipped


class TestMlxLm:
    def test_a_pass_has_what_the_draft_model_guessed_and_one_more(self):
        target, draft = tiny(seed=3), tiny(seed=3)
        prompt = prompt_of(30)
        plain = list(PlainLoop(target).passes(prompt, 12))
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
        plain = list(PlainLoop(target).passes(prompt, 12))
        passes = list(drafted_passes(target, draft, prompt, 12, 2))
        assert [token for done in passes for token in done.token_ids] == plain
        assert all(len(done.token_ids) == done.num_accepted + 1 for done in passes[:-1])
        assert sum(done.num_accepted for done in passes) < sum(done.num_drafted for done in passes)

    @pytest.mark.slow
    def test_arms(self, engine, tiny_gguf):
        arms, skipped = made(MLX_LM, subject_of(engine))
        assert list(arms) == ["mlx-lm-plain"]
        assert "--draft-model" in skipped["mlx-lm-draft"]
        _, skipped = made(MLX_LM, subject_of(engine, draft_path=tiny_gguf))
        assert "very same vocabulary" in skipped["mlx-lm-draft"]
        arms, skipped = made(MLX_LM, subject_of(engine, draft_path=engine.description.path))
        assert not skipped
        assert decode(arms["mlx-lm-draft"]).stats.accepted > 10


class TestAkunu:
    @pytest.mark.slow
    def test_all_programs_here_decode_the_same_tokens(self, engine, drafting):
        subject = subject_of(engine, draft_path=engine.description.path)
        own, _ = akunu_arms(drafting, drafters=("ngram", "draft-model"))
        arms = {**own, **made(MLX_LM, subject)[0]}
        replies = {name: decode(arm) for name, arm in arms.items()}
        assert set(replies) == {
            "akunu-plain", "akunu-ngram", "akunu-draft-model", "mlx-lm-plain", "mlx-lm-draft",
        }  # fmt: skip
        assert len({found.token_ids for found in replies.values()}) == 1
        plain, drafting = replies["akunu-plain"], replies["akunu-draft-model"]
        assert (plain.num_first, plain.stats.steps, plain.stats.drafted) == (1, 24, 0)
        assert drafting.stats.steps < 10
        assert drafting.stats.accepted == len(drafting.token_ids) - drafting.stats.steps
        for arm in arms.values():
            arm.close()

    def test_nothing_is_left_of_a_reply(self, engine, monkeypatch):
        resets = []
        reset = Engine.reset
        monkeypatch.setattr(Engine, "reset", lambda engine: (resets.append(1), reset(engine)))
        arms, _ = akunu_arms(engine, drafters=("auto",))
        # A reply that auto remembered would be copied from, in fewer passes.
        first, second = (decode(arms["akunu-auto"], tuple(range(40, 70))) for _ in range(2))
        assert second.passes == first.passes
        assert first.stats.steps > 4
        assert len(resets) == 2

    def test_an_end_ends_mlx_lms_loop(self, engine):
        whole = decode(made(MLX_LM, subject_of(engine))[0]["mlx-lm-plain"]).token_ids
        cut = whole[: whole.index(whole[5]) + 1]
        subject = subject_of(engine, end_ids=frozenset({whole[5]}))
        assert decode(made(MLX_LM, subject)[0]["mlx-lm-plain"]).token_ids == cut

    def test_names_and_reasons(self, engine):
        arms, skipped = akunu_arms(engine, drafters=("none", "draft-model"))
        assert list(arms) == ["akunu-plain"]
        assert "--draft-model" in skipped["akunu-draft-model"]
        arms, _ = akunu_arms(engine, draft_budget="auto")
        assert [arm.steady for arm in arms.values()] == [True, False]
        arms, _ = akunu_arms(engine)
        assert [arm.steady for arm in arms.values()] == [True, True]


class FakeServer:
    """Answers as llama.cpp's server does, with what is written down; `asked` are the requests."""

    def __init__(self, status=200, **reply):
        self.asked = asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                asked.append((self.path, json.loads(body)))
                text = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_arguments):
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.listening_address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def serving():
    """Make arms over a server that answers one way, whatever it is asked."""
    servers = []

    def arm(**reply):
        servers.append(FakeServer(**reply))
        made = LlamaCppArm("x", "", lambda: servers[-1], 9, frozenset({0}))
        return made, servers[-1].asked

    yield arm
    for server in servers:
        server.close()


class TestLlamaCpp:
    def test_a_reply_has_llama_cpps_own_times_and_counts(self, serving):
        timings = {"prompt_ms": 250.0, "predicted_ms": 1500.0, "draft_n": 9, "draft_n_accepted": 4}
        arm, asked = serving(tokens=[3, 1, 4, 1, 5, 9, 2, 0], timings=timings)
        found = decode(arm)
        assert found.token_ids == (3, 1, 4, 1, 5, 9, 2, 0)
        assert (found.num_first, found.first_s, found.decode_s) == (1, 0.25, 1.5)
        assert (found.stats.steps, found.stats.drafted, found.stats.accepted) == (4, 9, 4)
        ((path, request),) = asked
        assert path == "/completion"
        assert request == {
            "prompt": list(PROMPT), "n_predict": 9, "temperature": 0, "cache_prompt": False,
            "return_tokens": True,
        }  # fmt: skip

    def test_plain_decoding_counts_no_drafts(self, serving):
        arm, _ = serving(tokens=[3, 1], timings={"prompt_ms": 2.0, "predicted_ms": 1.0})
        stats = decode(arm).stats
        assert (stats.steps, stats.drafted, stats.accepted) == (2, 0, 0)

    def test_what_it_refuses_is_said_in_its_words(self, serving):
        arm, _ = serving(status=400, error={"message": "exceeds the context"})
        with pytest.raises(ContractError, match=r"refused the prompt: .*exceeds the context"):
            decode(arm)

    def test_a_reply_that_goes_on_behind_an_end_is_not_counted(self, serving):
        arm, _ = serving(tokens=[3, 0, 1], timings={"prompt_ms": 2.0, "predicted_ms": 1.0})
        with pytest.raises(ContractError, match="after token 0"):
            decode(arm)

    def test_a_folder_is_not_a_gguf_file(self, engine, tmp_path):
        with pytest.raises(UnavailableError, match="GGUF"):
            made(LLAMA_CPP, subject_of(engine, path=tmp_path))

    def test_absent(self, engine, monkeypatch):
        monkeypatch.setitem(sys.modules, "xllamacpp", None)
        with pytest.raises(UnavailableError, match=re.escape(install_command("compare"))):
            made(LLAMA_CPP, subject_of(engine))

    @needs_llama_cpp
    def test_replies(self, engine):
        subject = subject_of(engine, max_tokens=96)
        arms, skipped = made(LLAMA_CPP, subject)
        assert not skipped
        # The reply ends in a loop, so that there is something to copy.
        replies = {name: decode(arm) for name, arm in arms.items()}
        plain = replies[PLAIN]
        akunu = decode(akunu_arms(engine, max_tokens=96)[0]["akunu-plain"])
        # Its activations have 8 bits, so that ties may fall otherwise, but not at once.
        assert plain.token_ids[:4] == akunu.token_ids[:4]
        assert (plain.stats.steps, plain.stats.drafted) == (96, 0)
        assert list(replies) == [PLAIN, *(f"llama.cpp-{mode}" for mode in MODES)]
        for name, reply in replies.items():
            assert reply.token_ids == plain.token_ids
            assert reply.stats.steps + reply.stats.accepted == 96
            # ngram-simple copies no loop that is shorter than its drafts.
            assert (reply.stats.accepted > 0) == (name not in {PLAIN, "llama.cpp-ngram-simple"})
            # A second reply finds nothing of the first one.
            assert decode(arms[name]).stats == reply.stats

    @needs_llama_cpp
    def test_all_modes_that_llama_cpp_has_are_measured(self):
        import xllamacpp

        names = {kind.name for kind in xllamacpp.common_speculative_type}
        assert {f"COMMON_SPECULATIVE_TYPE_{mode.upper().replace('-', '_')}" for mode in MODES} == {
            name for name in names if "NGRAM" in name
        }


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
        with Engine.load(path) as loaded, loaded.lend("compared") as lent:
            model, decoder = lent.model, plain_decoder(lent.model, lent.dense_arrays())
        assert model.args.rope_traditional
        assert decoder.model_type == "llama"
        assert decoder.float32
        theirs = logits_of(decoder, PROMPT)
        ours = np.array(model(mx.array(PROMPT)[None])[0])
        assert np.abs(theirs - ours).max() < 1e-4 * LEEWAY * ours.std()

    def test_quantized_layers_are_expanded_and_left_alone(self):
        model = tiny(hidden_size=64, rope_traditional=True)
        dense = plain_decoder(model, dense_arrays(model))
        quantized = tiny(hidden_size=64, rope_traditional=True)
        nn.quantize(quantized, group_size=32, bits=8)
        before = quantized.layers[0].mlp.up_proj
        expanded = plain_decoder(quantized, dense_arrays(quantized))
        assert set(expanded.arrays) == set(dense.arrays)
        for path, array in expanded.arrays.items():
            assert array.dtype == np.float32
            assert np.abs(array - dense.arrays[path]).max() < 0.02 * np.abs(array).max() + 1e-6
        assert quantized.layers[0].mlp.up_proj is before

    def test_what_cannot_be_handed_over(self):
        model = tiny()
        model.layers[0].self_attn.rope = FrequencyRope(16, mx.ones(8), traditional=False, scale=2.0)
        with pytest.raises(ConfigError, match="FrequencyRope"):
            plain_decoder(model, dense_arrays(model))
        model.layers[0].self_attn.rope = FrequencyRope(8, mx.ones(4), traditional=False)
        with pytest.raises(ConfigError, match="8 of 16"):
            plain_decoder(model, dense_arrays(model))
        sliding = tiny(layer_types=["sliding_attention", "full_attention"], sliding_window=16)
        with pytest.raises(ConfigError, match="sliding"):
            plain_decoder(sliding, dense_arrays(sliding))
        with pytest.raises(ConfigError, match="not among"):
            plain_decoder(nn.Linear(2, 2), {})

    def test_frequencies(self):
        model = tiny(rope_theta=100.0)
        assert plain_decoder(model, dense_arrays(model)).inverse_frequencies == pytest.approx(
            100.0 ** -(np.arange(8) / 8)
        )
        model.layers[0].self_attn.rope = FrequencyRope(16, mx.arange(1, 9), traditional=False)
        assert plain_decoder(model, dense_arrays(model)).inverse_frequencies == pytest.approx(
            1 / np.arange(1, 9)
        )


class TestTransformers:
    def test_absent(self, engine, monkeypatch):
        monkeypatch.setitem(sys.modules, "torch", None)
        with pytest.raises(UnavailableError, match=re.escape(install_command("compare"))):
            made(TRANSFORMERS, subject_of(engine))

    @needs_torch
    def test_replies(self, engine):
        subject = subject_of(engine)
        arms, skipped = made(TRANSFORMERS, subject)
        assert not skipped
        plain, lookup = decode(arms["transformers-plain"]), decode(arms["transformers-lookup"])
        akunu = decode(akunu_arms(engine)[0]["akunu-plain"])
        assert plain.token_ids == lookup.token_ids == akunu.token_ids
        assert (plain.stats.steps, plain.stats.drafted) == (24, 0)
        assert lookup.stats.steps < 24
        assert len(lookup.token_ids) == lookup.stats.steps + lookup.stats.accepted
        cut = plain.token_ids[: plain.token_ids.index(plain.token_ids[5]) + 1]
        subject = subject_of(engine, end_ids=frozenset({plain.token_ids[5]}))
        assert decode(made(TRANSFORMERS, subject)[0]["transformers-lookup"]).token_ids == cut

    @needs_torch
    def test_another_models_logits_are_refused(self, engine):
        subject = subject_of(engine, logits=-engine.logits(PROMPT))
        with pytest.raises(UnavailableError, match="would not be the same model"):
            transformers_arms.make_arms(subject)


def command(*arguments):
    result = CliRunner().invoke(cli, ["bench", "compare", *map(str, arguments)])
    return result.exit_code, result.output


def result_of(*arguments):
    """Return the result that the command writes with --json; its notices go to standard error."""
    result = CliRunner().invoke(cli, ["bench", "compare", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return BenchResult.parse(result.stdout)


@pytest.fixture
def one_process(monkeypatch):
    """Make the arms of all programs in this process, which is quicker."""

    def start(programs, subject):
        made = [arm for program in programs for arm in program.make(subject)]
        skipped = tuple(arm for arm in made if isinstance(arm, Skipped))
        return tuple(arm for arm in made if not isinstance(arm, Skipped)), skipped

    monkeypatch.setattr(run, "start_peers", start)


@pytest.mark.slow
def test_every_program_that_is_here_in_its_process(draft_path):
    result = result_of(
        draft_path, "--draft-model", draft_path, "--category", "config", "--limit", 1,
        "--max-tokens", 8, "--context", 1024, "--threads", 1,
    )  # fmt: skip
    arms = result.timing["arms"]
    assert {"akunu-auto", "akunu-draft-model", "mlx-lm-plain", "mlx-lm-draft"} <= set(arms)
    assert ("llama.cpp-ngram-mod" in arms) == (find_spec("xllamacpp") is not None)
    assert ("transformers-lookup" in arms) == (find_spec("torch") is not None)
    assert not result.failures
    total = result.deterministic["total"]
    assert total["mlx-lm-plain"]["differing_from_akunu"] == 0


@pytest.mark.slow
def test_the_command(draft_path, tmp_path, one_process):
    options = [
        draft_path, "--program", "mlx-lm", "--drafter", "ngram", "--draft-model", draft_path,
        "--category", "config", "--quick", "--limit", 1, "--max-tokens", 8, "--draft-budget", "always",
        "--context", 1024, "--threads", 1, "--output", tmp_path / "out",
    ]  # fmt: skip
    result = result_of(*options)
    assert result.command == "compare"
    assert result.arguments["drafters"] == ["ngram"]
    assert result.arguments["threads"] == 1
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
    again = result_of(*options)
    assert again.items == result.items
    assert again.costs == result.costs
    assert again.deterministic == result.deterministic
    assert (tmp_path / "out" / "items.jsonl").read_text() == kept


@pytest.mark.slow
def test_prompts_of_a_file(draft_path, tmp_path, one_process):
    path = tmp_path / "mine.jsonl"
    problem = {"id": "HumanEval/0", "category": "c", "kind": "raw", "prompt": "def f(x):\n"}
    path.write_text(json.dumps(problem) + "\noops\n")
    result = result_of(
        draft_path, "--prompts", path, "--program", "mlx-lm", "--drafter", "none", "--max-tokens", 4,
        "--context", 256,
    )  # fmt: skip
    assert [item["id"] for item in result.items] == ["HumanEval/0"]
    assert result.arguments["prompts"] == [str(path)]
    assert result.arguments["threads"] >= 1
    (failure,) = result.failures
    assert "line 2" in failure.item


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kv-bits", "8"], "--kv-bits has no counterpart"),
        (["--reproducible"], "--reproducible has no counterpart"),
        (["--drafter", "magic"], "no drafter named 'magic'"),
        (["--program", "ollama"], "ollama"),
        (["--category", "poems"], "no category named 'poems'"),
    ],
)
def test_mistakes_of_the_caller(arguments, words):
    code, output = command(*arguments)
    assert code == 2
    assert words in " ".join(output.split())


def test_no_module_imports_mlx_before_the_kernels():
    """In a process of its own, as the programs have."""
    code = (
        "import akunu_lab.compare.mlx_lm_arms, akunu_lab.compare.run, akunu_py.cpu; "
        "print(akunu_py.cpu.load_kernels().reason)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "AKUNU_CPU": "auto"},
    )  # fmt: skip
    assert "before akunu" not in done.stdout
