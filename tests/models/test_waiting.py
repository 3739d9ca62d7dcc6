"""What a pass queues and when, and for what the host waits: once a pass.

Mutants, made by hand, that these tests kill: layers queued behind a step in flight, or on a CPU;
none queued in a tree, in a joined pass, or in the plain step behind a draft; rows kept in another
stream.
"""

import mlx.core as mx
import pytest
from family_models import build_family
from mlx_lm.models import llama
from tiny_models import GREEDY, adversary, begin, generate, prompt_of, tiny

from akunu_py.drafting import PlainDrafter
from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.joined import JoinedForward, WantedChoice, choose_together
from akunu_py.models.passes import forward
from akunu_py.models.session import Session
from akunu_py.values.types import Draft, GenerationConfig

PROMPT = prompt_of(12)
SAMPLED = GenerationConfig(temperature=0.8)
PLAIN = Draft.empty()
CHAIN = Draft.chain((1, 2, 3), "x")
TREE = Draft((1, 2, 3, 4), (-1, -1, 0, 1), "x")

WHOLE = "llllll q"
BEGUN = "l q lll q ll q"


@pytest.fixture(scope="module")
def model():
    return tiny(num_hidden_layers=6)


@pytest.fixture
def log(monkeypatch):
    """What happens: a layer is built, something is queued, evaluated, or brought to the host."""
    happened = []

    def logged(owner, name, letter):
        sound = getattr(owner, name)

        def call(*given, **named):
            happened.append(letter)
            return sound(*given, **named)

        monkeypatch.setattr(owner, name, call)

    logged(llama.TransformerBlock, "__call__", "l")
    logged(mx, "async_eval", "q")
    for owner, name in (
        (mx, "eval"), (mx, "synchronize"), (mx.array, "item"), (mx.array, "tolist"),
    ):  # fmt: skip
        logged(owner, name, "w")
    return happened


@pytest.fixture(params=["cpu", "gpu"])
def device(request, monkeypatch):
    monkeypatch.setattr(forward, "on_cpu", lambda: request.param == "cpu")
    return request.param


def happens(log, work, *given):
    log.clear()
    found = work(*given)
    return "".join(log), found


def as_written(text):
    return text.replace(" ", "")


@pytest.mark.parametrize("config", [GREEDY, SAMPLED, GenerationConfig(repetition_penalty=1.2)])
@pytest.mark.parametrize(("draft", "accepted"), [
    (CHAIN, (0, 1, 2)), (CHAIN, (0,)), (CHAIN, ()), (TREE, (0, 2)), (TREE, ()),
])  # fmt: skip
def test_a_drafted_pass_is_queued_as_it_is_built(model, log, device, config, draft, accepted):
    """A device that has nothing to do begins behind the first layer."""
    session = Session(model, context=100)
    begin(session, PROMPT, config)
    session.takes_tree(TREE)
    session.report_logprobs(3)
    session.track_candidates(4)
    built = BEGUN if device == "gpu" else WHOLE
    for _ in range(2):
        assert happens(log, session.choose, 4, draft)[0] == as_written(built + "w")
        assert not happens(log, session.commit, accepted)[0]


def test_only_what_nothing_is_in_flight_before_is_begun_early(model, log, device):
    session = Session(model, context=100)
    begin(session, PROMPT)
    built = BEGUN if device == "gpu" else WHOLE
    found, (token,) = happens(log, session.choose, 4, PLAIN)
    assert found == as_written(built + WHOLE + "w")
    session.commit(())
    found, (token,) = happens(log, session.choose, token, PLAIN)
    assert found == as_written(WHOLE + "w")
    session.commit(())
    right = int(session._in_flight.tokens[0].item())
    refuted = happens(log, session.choose, token, Draft.chain(((right + 1) % 97, 5)))
    assert refuted[0] == as_written("w" + built)
    session.commit(())
    right = int(session._in_flight.tokens[0].item())
    found, _ = happens(log, session.choose, refuted[1][0], Draft.chain((right, 5)))
    assert found == as_written("w" + built + "w")


@pytest.mark.parametrize("draft", [CHAIN, TREE])
def test_a_joined_pass_is_queued_as_it_is_built(model, log, device, draft):
    sessions = [Session(model, context=100) for _ in range(3)]
    for session in sessions:
        begin(session, PROMPT)
        session.takes_tree(TREE)
    wanted = [WantedChoice(session, 4, draft) for session in sessions]
    found, _ = happens(log, choose_together, JoinedForward(model), wanted)
    built = "l q lll q ll" if device == "gpu" else "llllll"
    assert found == as_written(built + "qqq www")


@pytest.mark.parametrize(
    "name", ["llama", "gemma3", "qwen3_next", "mamba2", "deepseek_v3", "gemma3n"]
)
@pytest.mark.parametrize("config", [GREEDY, SAMPLED])
def test_passes_begun_early_choose_the_same(monkeypatch, name, config):
    model = build_family(name)
    text = generate(Session(model, context=100), PROMPT, config, PlainDrafter(), max_tokens=24)
    monkeypatch.setattr(forward, "on_cpu", lambda: False)
    for kind in ("half", "right"):
        drafter = adversary(kind, [*PROMPT, *text], 1)
        assert text == generate(Session(model, context=100), PROMPT, config, drafter, max_tokens=24)


@pytest.mark.parametrize(("draft", "accepted"), [(CHAIN, (0,)), (TREE, (1, 3))])
def test_rows_are_kept_in_the_stream_of_the_passes(model, monkeypatch, draft, accepted):
    """Elsewhere a GPU would wait for each of their arrays."""
    session, streams = Session(model, context=100), []
    begin(session, PROMPT)
    session.choose(4, draft)

    def logged(sound):
        def call(*given):
            streams.append(str(mx.default_stream(mx.default_device())))
            return sound(*given)

        return call

    monkeypatch.setattr(CachedRows, "keep", logged(CachedRows.keep))
    session.commit(accepted)
    with mx.stream(session.stream):
        assert streams == [str(mx.default_stream(mx.default_device()))]
