"""The states of recurrent layers after the first rows of a pass, without feeding these rows alone.

Mutants, made by hand, that these tests kill: the record of the pass before; a window cut one row
short or late; the state after the pass in place of the one before; a record kept over a restore, or
over another pass; a replay of k - 1 rows; rows of another session taken in a joined pass; a record
of a pass over empty caches; a fallback that feeds the rejected rows, or forgets to restore.
"""

import functools
import gc
import inspect
import sys

import mlx.core as mx
import pytest
from family_models import build_family
from mlx_lm.models.cache import ArraysCache
from mlx_lm.models.ssm import ssm_update
from pass_sizes import record_sizes
from tiny_families import FAMILIES
from tiny_models import GREEDY, VOCABULARY, adversary, begin, generate, prompt_of

from akunu_py.decoding.loop import decode
from akunu_py.drafting import PlainDrafter
from akunu_py.models.cached_rows import CachedRows
from akunu_py.models.pass_times import measure_passes
from akunu_py.models.passes import forward, seams
from akunu_py.models.passes.forward import forward_of
from akunu_py.models.rollback import recurrence
from akunu_py.models.rollback.caches import leaves
from akunu_py.models.rollback.recurrence import Record, _Call, row_by_row
from akunu_py.models.session import Session
from akunu_py.values.types import Draft

RECURRENT = list(FAMILIES)[list(FAMILIES).index("mamba") :]
# Here the rows of a pass differ from those of a shorter one before any state does: by latent
# attention, by the order of a window that has wrapped, and by the kernel of one column.
APART = {
    "kimi_linear", "kimi_k3", "bailing_hybrid", "bailing_moe_v3", "longcat_flash_ngram",
    "baichuan_m1", "gear",
}  # fmt: skip
LEAD = prompt_of(5)
PASSES = [(rows, kept) for rows in (2, 5, 9) for kept in sorted({1, 2, rows // 2 + 1, rows - 1})]


def states(rows):
    """The arrays in the caches of recurrent layers."""
    return [
        array for leaf in leaves(rows.caches) if type(leaf) is ArraysCache for array in leaf.cache
    ]


def distance(found, expected):
    """The largest difference of a number, relative to the largest of its array."""
    return max(
        float(mx.abs(one.astype(mx.float32) - other.astype(mx.float32)).max())
        / float(mx.abs(other.astype(mx.float32)).max())
        for one, other in zip(found, expected, strict=True)
    )


def fed(rows, tokens, keep=None):
    """Feed tokens, and keep the first `keep` of them."""
    logits = rows.passes.run(rows.planned(mx.array(tokens)))
    mx.eval(logits)
    rows.keep(tokens, range(len(tokens) if keep is None else keep))
    return logits


@pytest.mark.parametrize("name", RECURRENT)
def test_states_are_those_of_a_pass_over_the_rows_that_stay(name, monkeypatch):
    model = build_family(name)
    cut, short = CachedRows(model), CachedRows(model)
    for rows in (cut, short):
        rows.prefill(LEAD)
    # They are replayed in every family.
    monkeypatch.delattr(CachedRows, "feed_apart")
    text, missed = prompt_of(200, seed=3), 0.0
    for size, kept in PASSES:
        at = len(cut.tokens)
        before = cut.rollback.save()
        fed(cut, [*text[at : at + kept], *prompt_of(size - kept, seed=at)], kept)
        fed(short, text[at : at + kept])
        found, expected = states(cut), states(short)
        if name in APART:
            assert distance(found, expected) < 1e-5
        else:
            assert all(mx.array_equal(*pair) for pair in zip(found, expected, strict=True))
        if kept > 1:
            # The control: one row fewer is seen.
            with cut.changing():
                held = cut.rollback.save()
                cut.rollback.restore(before)
                del cut.tokens[at:]
            fed(cut, text[at : at + kept], kept - 1)
            missed = max(missed, distance(states(cut), expected))
            cut.rollback.restore(held)
            cut.tokens[at:] = text[at : at + kept]
    assert missed > 0.03
    after = [fed(rows, [1, 2, 3]) for rows in (cut, short)]
    assert distance(*([logits] for logits in after)) < (1e-5 if name in APART else 1e-9)


@pytest.mark.parametrize("name", RECURRENT)
def test_a_prompt_of_one_token_and_a_draft_at_once(name):
    """Nothing is recorded over empty caches: rows are fed again."""
    session = Session(build_family(name), context=200)
    truth = generate(session, [7], GREEDY, PlainDrafter(), max_tokens=12)
    wrong = [(token + 1) % VOCABULARY for token in truth]
    session.reset()
    begin(session, [7], max_tokens=12)
    assert session.choose(7, Draft.chain([truth[0], wrong[1], 5]))[:2] == truth[:2]
    session.commit((0,))
    assert session.rows.tokens == [7, truth[0]]
    assert session.choose(truth[1], Draft.chain([truth[2], wrong[3]]))[:2] == truth[2:4]
    session.commit((0,))
    assert session.choose(truth[3], Draft.empty()) == [truth[4]]


@pytest.fixture(scope="module")
def hybrid():
    return build_family("qwen3_next")


@pytest.mark.parametrize("kind", ["wrong", "half", "random", "right"])
def test_rows_are_fed_once(hybrid, kind, monkeypatch):
    session, prompt = Session(hybrid, context=600), prompt_of(20)
    truth = generate(session, prompt, GREEDY, PlainDrafter(), max_tokens=80)
    drafter = adversary(kind, [*prompt, *truth], 3)
    # The trial's passes are not the reply's.
    assert session.rows.passes.replays
    session.reset()
    begin(session, prompt, max_tokens=80)
    sizes = record_sizes(monkeypatch)
    drafter.observe(prompt)
    steps = list(decode(session, drafter, prompt[-1], num_draft_tokens=6, max_tokens=80))
    assert [token for step in steps for token in step.token_ids] == truth
    drafted = sum(step.stats.num_draft_tokens for step in steps)
    assert drafted > 20
    assert sum(sizes) <= 1.04 * (len(steps) + drafted)


def test_a_record_is_of_the_last_pass_alone(hybrid):
    rows = CachedRows(hybrid)
    rows.prefill(LEAD)
    saved = rows.rollback.save()
    for between in ("restored", "fed"):
        mx.eval(rows.passes.run(rows.planned(mx.array([1, 2, 3, 4]))))
        if between == "restored":
            rows.rollback.restore(saved)
        else:
            mx.eval(rows.feed(mx.array([5])))
        held = states(rows)
        assert not rows.rollback.undo(2)
        assert all(one is other for one, other in zip(states(rows), held, strict=True))


def test_what_was_recorded_is_let_go(hybrid):
    rows = CachedRows(hybrid)
    rows.prefill(LEAD)
    fed(rows, [1, 2, 3])
    assert rows.rollback._record is None
    assert rows._before is None
    assert recurrence._open.record is None


def test_undoing_a_pass_is_timed(hybrid):
    for model, rounds in ((hybrid, 2), (build_family("llama"), 0)):
        times = measure_passes(Session(model, context=100), prompt_of(9), rows=(1, 5), repeats=2)
        assert len(times.replays_s) == rounds


def test_what_a_trial_found_goes_with_its_model():
    """A later model may get its id, and must be tried itself."""
    model = build_family("mamba")
    key = id(model)
    assert forward_of(model).replays
    assert key in forward._known
    del model
    gc.collect()
    assert key not in forward._known


def spoilt(monkeypatch, model, how):
    """What a later mlx-lm could do: another name, another order, other arguments."""
    assert forward_of(model).replays
    # To be tried anew; put back at the end.
    monkeypatch.delitem(vars(forward_of(model)), "replays")
    if how == "unknown":
        monkeypatch.setattr(Record, "close", lambda self: None)
    elif how == "wrong":
        over = _Call.over
        monkeypatch.setattr(_Call, "over", lambda call, count: over(call, count) * 2)
    else:
        monkeypatch.delattr(_Call, "over")


@pytest.mark.parametrize("how", ["unknown", "wrong", "failing"])
def test_where_states_are_not_known_rows_are_fed_again(hybrid, how, monkeypatch, caplog):
    caplog.set_level("INFO")
    prompt = prompt_of(20)
    session = Session(hybrid, context=600)
    truth = generate(session, prompt, GREEDY, PlainDrafter(), max_tokens=30)
    spoilt(monkeypatch, hybrid, how)
    apart, whole = [], CachedRows.feed_apart
    monkeypatch.setattr(
        CachedRows, "feed_apart", lambda self, tokens: apart.append(tokens) or whole(self, tokens)
    )
    drafter = adversary("half", [*prompt, *truth], 3)
    assert generate(session, prompt, GREEDY, drafter, max_tokens=30) == truth
    assert len(apart) > 3
    assert caplog.text.count("rows are fed again") == 1


def test_an_interrupt_inside_a_replay_starts_the_caches_afresh(hybrid, monkeypatch):
    prompt = prompt_of(20)
    session = Session(hybrid, context=600)
    truth = generate(session, prompt, GREEDY, PlainDrafter(), max_tokens=30)
    drafter = adversary("half", [*prompt, *truth], 3)
    over, calls = _Call.over, []

    def interrupted(call, count):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return over(call, count)

    assert session.rows.passes.replays
    with monkeypatch.context() as patch:
        patch.setattr(_Call, "over", interrupted)
        with pytest.raises(KeyboardInterrupt):
            generate(session, prompt, GREEDY, drafter, max_tokens=30)
    assert not session.rows.settled
    drafter = adversary("half", [*prompt, *truth], 3)
    assert generate(session, prompt, GREEDY, drafter, max_tokens=30) == truth


@pytest.mark.parametrize(
    ("heads", "groups", "width", "size"), [(8, 2, 16, 16), (5, 1, 7, 9), (6, 3, 64, 20)]
)
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("begun", [True, False])
def test_rows_of_a_state_space_have_the_bits_of_single_rows(
    heads, groups, width, size, dtype, begun
):
    mx.random.seed(rows := 4)
    shapes = [(rows, heads, width), (rows, groups, size), (rows, groups, size), (rows, heads)]
    inputs = [mx.random.normal((1, *shape)).astype(dtype) for shape in shapes]
    of_heads = [mx.random.normal((heads,)) for _ in range(3)]
    before = mx.random.normal((1, heads, width, size)) if begun else None

    def update(function, inputs, state):
        x, b, c, dt = inputs
        return function(x, of_heads[0], b, c, of_heads[1], dt, of_heads[2], state)

    outputs, state = [], before
    for row in range(rows):
        output, state = update(ssm_update, [held[:, row : row + 1] for held in inputs], state)
        outputs.append(output)
    found = update(row_by_row(ssm_update), inputs, before)
    assert mx.array_equal(found[0], mx.concatenate(outputs, axis=1))
    assert mx.array_equal(found[1], state)


def test_a_function_that_somebody_else_wrapped_is_watched(monkeypatch):
    model = build_family("mamba2")
    module = sys.modules[type(model).__module__]
    update, calls = inspect.unwrap(module.ssm_update), []

    @functools.wraps(update)
    def counting(*values, **named):
        calls.append(0)
        return update(*values, **named)

    monkeypatch.setattr(module, "ssm_update", counting)
    # A class that was never watched, as in a new process.
    model.__class__ = type("Model", (type(model),), {"__module__": module.__name__})
    seams.install(model)
    assert forward_of(model).replays
    assert calls
