"""`akunu bench compare` with arms that are written down: order, clock, identity, failures."""

import os
import types
from pathlib import Path

import compare_fakes
import numpy as np
import pytest
from compare_fakes import END, FakeArm, Ticks, item
from msgspec.structs import replace

from akunu_py import ConfigError
from akunu_py.bench.bootstrap import Ratio
from akunu_py.bench.result_file import Failure
from akunu_py.bench.resume import ItemStore
from akunu_py.bench.rows import encode, parse, typed
from akunu_py.bench.run import turned
from akunu_py.lab.compare import arm as arm_module
from akunu_py.lab.compare.arm import Decoded, Recorder, Skipped, Subject
from akunu_py.lab.compare.figures import arm_figures, identity, ratio
from akunu_py.lab.compare.peer import PeerError, start_peers
from akunu_py.lab.compare.report import compare, compare_findings, deterministic, tables, timing
from akunu_py.lab.compare.runner import ItemRun, Runs, run_items
from akunu_py.system.errors import ContractError


@pytest.fixture
def ticks(monkeypatch):
    clock = Ticks()
    monkeypatch.setattr(arm_module, "time", types.SimpleNamespace(perf_counter=clock))
    return clock


def memory():
    return ItemStore(None, {})


def run(arms, items, store=None, max_tokens=8, progress=None):
    return run_items(
        arms,
        items,
        memory() if store is None else store,
        max_tokens=max_tokens,
        end_ids=END,
        progress=progress,
    )


def reply(tokens, *, first=1, first_s=1.0, decode_s=2.0, passes=None, drafted=0, accepted=0):
    passes = len(tokens) - first if passes is None else passes
    return Decoded(tuple(tokens), first, first_s, decode_s, passes, drafted, accepted)


def runs_of(*replies):
    return [ItemRun(item(number), found, {}) for number, found in enumerate(replies, 1)]


def logits(token_ids):
    """Margins tell which text was asked for: its length over ten."""
    rows = np.zeros((len(token_ids), 9), dtype=np.float32)
    rows[:, 3] = 1 + np.arange(1, len(token_ids) + 1) / 10
    rows[:, 4] = 1
    return rows


class TestRecorder:
    def test_the_first_pass_is_the_prompts(self, ticks):
        recorder = Recorder(20, END)
        recorder.start()  # 1
        assert not recorder.take((7, 8), num_drafted=9, num_accepted=1)  # 2
        assert not recorder.take((9,), num_drafted=3)  # 3
        assert not recorder.take((5, 6, 7), num_drafted=3, num_accepted=2)  # 4
        found = recorder.result()
        assert found == Decoded((7, 8, 9, 5, 6, 7), 2, 1.0, 2.0, 2, 6, 2)
        assert found.num_timed == 4

    def test_what_lies_behind_an_end_does_not_count(self, ticks):
        recorder = Recorder(20, END)
        recorder.start()
        recorder.take((7,))
        assert recorder.take((5, 0, 6, 7), num_drafted=5, num_accepted=3)
        assert recorder.take((8, 9), num_drafted=5, num_accepted=1)
        assert recorder.result() == Decoded((7, 5, 0), 1, 1.0, 1.0, 1, 5, 2)

    def test_no_more_than_was_asked_for(self, ticks):
        recorder = Recorder(3, END)
        recorder.start()
        assert not recorder.take((7,))
        assert not recorder.take(())
        assert recorder.take((5, 6, 7), num_drafted=2, num_accepted=2)
        assert recorder.result() == Decoded((7, 5, 6), 1, 1.0, 2.0, 1, 2, 2)
        exactly = Recorder(2, END)
        assert exactly.take((4, 5))

    def test_no_token_is_an_error(self):
        with pytest.raises(ContractError, match="no token"):
            Recorder(3, END).result()


def test_replies_survive_json():
    one = reply((1, 2, 3), drafted=4, accepted=1)
    value = parse(encode(one), "it")
    assert typed(value, Decoded, "it") == one
    with pytest.raises(ConfigError, match=r"it: field token_ids\[1\]: Expected int >= 0"):
        typed({**value, "token_ids": [1, -2]}, Decoded, "it")


class TestRunner:
    def test_every_arm_is_first_and_last_in_turn(self):
        arms = [FakeArm(name, ()) for name in "abc"]
        orders = [[arm.name for arm in turned(arms, number)] for number in range(6)]
        assert {order[0] for order in orders} == {order[-1] for order in orders} == set("abc")
        assert all(sorted(order) == list("abc") for order in orders)
        assert {orders[0][0], orders[1][-1]} == {"a"}

    def test_all_arms_decode_an_item_before_the_next(self):
        log = []
        arms = [FakeArm(name, [(3,), (4,)], log=log) for name in "abc"]
        seen = []
        found = run(arms, [item(1), item(2)], progress=lambda *made: seen.append(made))
        # The first three warm up.
        assert [number for number, _ in log] == [1] * 6 + [2] * 3
        assert [name for _, name in log] == [*"abc", *"abc", *"cba"]
        assert [list(done.replies) for done in found.items] == [list("abc"), list("cba")]
        assert found.finished
        assert seen[0] == (0, 6)
        assert seen[-1] == (6, 6)

    def test_an_arm_that_fails_on_an_item_fails_there_alone(self):
        def moody(prompt):
            return [(3,), RuntimeError("out of rows")] if prompt[0] == 1 else [(3,)]

        found = run([FakeArm("a", [(3,)]), FakeArm("b", moody)], [item(1), item(2)])
        first, second = found.items
        assert first.errors == {"b": "RuntimeError: out of rows"}
        assert set(first.replies) == {"a"}
        assert set(second.replies) == {"a", "b"}
        assert not second.errors

    def test_an_interrupt_keeps_what_is_finished(self):
        def interrupted(prompt):
            return [KeyboardInterrupt()] if prompt[0] == 2 else [(3,)]

        store = memory()
        found = run([FakeArm("a", interrupted)], [item(1), item(2), item(3)], store)
        assert [done.item.id for done in found.items] == ["i1"]
        assert not found.finished
        assert list(store) == ["i1"]

    def test_kept_items_are_not_decoded_again(self, tmp_path):
        items = [item(1), item(2), item(3)]
        with ItemStore(tmp_path, {"run": 1}) as store:
            before = run([FakeArm("a", [(3,), (4, 5)])], items[:2], store)
        log = []
        with ItemStore(tmp_path, {"run": 1}) as store:
            after = run([FakeArm("a", [(9,)], log=log)], items, store)
        assert [number for number, _ in log] == [3, 3]
        assert after.items[:2] == before.items
        assert after.items[2].replies["a"].token_ids == (9,)

    def test_a_kept_item_of_another_prompt_is_decoded_again(self, tmp_path):
        log = []
        with ItemStore(tmp_path, {}) as store:
            run([FakeArm("a", [(3,)])], [item(1)], store)
            changed = replace(item(1), prompt=(7, 5))
            after = run([FakeArm("a", [(9,)], log=log)], [changed], store)
        assert [number for number, _ in log] == [7, 7]
        assert after.items[0].item == changed


class TestFigures:
    def test_counts_and_rates_leave_the_first_pass_out(self):
        found = arm_figures(
            runs_of(
                {"a": reply((1, 2, 3, 4), first=1, decode_s=2.0, passes=2, drafted=6, accepted=1)},
                {"a": reply((1, 2, 3), first=2, first_s=3.0, decode_s=2.0, passes=1, drafted=2)},
                {},
            ),
            "a",
        )
        assert (found.replies, found.tokens, found.passes) == (2, 7, 3)
        assert found.tokens_per_s == 1.0
        assert found.tokens_per_pass == pytest.approx(4 / 3)
        assert found.first_s == 2.0
        # Two prompts of three tokens, in 1 and 3 seconds.
        assert found.prompt_tokens_per_s == 6 / 4
        assert found.hit_rate == 1 / 8
        assert arm_figures(runs_of({}), "a") is None

    def test_the_digest_is_of_ids_and_items(self):
        def digest(*replies):
            return arm_figures(runs_of(*({"a": reply(ids)} for ids in replies)), "a").digest

        assert digest((1, 2), (3, 4)) == digest((1, 2), (3, 4))
        assert len({digest((1, 2), (3,)), digest((1,), (2, 3)), digest((12,), (3,))}) == 3

    def test_ratios_are_over_what_both_decoded(self):
        runs = runs_of(
            *[{"a": reply((1, 2, 3), decode_s=1.0), "b": reply((1, 2, 3), decode_s=2.0)}] * 3,
            *[{"a": reply((1, 2, 3), decode_s=1.0), "b": reply((1, 2, 3), decode_s=4.0)}] * 3,
            {"a": reply((1, 2, 3), decode_s=100.0)},
            {"a": reply((1,), decode_s=0.0), "b": reply((1, 2), decode_s=1.0)},
        )
        decoding = ratio(runs, "a", "b")
        assert decoding.ratio == pytest.approx((12 / 6) / (12 / 18))
        assert decoding.pairs == 6
        assert 2 <= decoding.low < 3 < decoding.high <= 4
        whole = ratio(runs, "a", "b", "whole")
        assert whole.pairs == 7
        assert whole.ratio == pytest.approx((19 / 13) / (20 / 26))
        prompt = ratio(
            runs_of(*[{"a": reply((1,)), "b": reply((1,), first_s=3.0)}] * 5), "a", "b", "prompt"
        )
        assert (prompt.ratio, prompt.pairs) == (pytest.approx(3.0), 5)
        assert ratio(runs, "a", "c").ratio is None
        # Two sessions give neither a ratio nor an interval.
        assert ratio(runs[2:4], "a", "b") == Ratio(None, None, None, 2)

    def test_identity_and_the_margin_where_it_ends(self):
        runs = runs_of(
            {"a": reply((1, 2, 3)), "b": reply((1, 2, 3))},
            {"a": reply((1, 7, 3)), "b": reply((1, 2, 3))},
            {"a": reply((1,)), "b": reply((1, 2))},
            {"a": reply((1,))},
        )
        found = identity(runs, "a", "b", logits)
        assert (found.identical, found.pairs) == (1, 3)
        assert {name: one.index for name, one in found.differences.items()} == {"i2": 1, "i3": 1}
        # Asked for after the prompt of three tokens and the one that both have.
        assert found.differences["i2"].margin == pytest.approx(0.4)


def some_runs(times=1):
    """Two items, `times` times: mlx-lm-draft failed on the second one."""
    plain = reply((1, 2, 3), decode_s=2.0)
    first = {
        "akunu-plain": plain,
        "akunu-auto": reply((1, 2, 3), decode_s=1.0, passes=1, drafted=4, accepted=1),
        "mlx-lm-plain": reply((1, 2, 3), decode_s=4.0),
        "mlx-lm-draft": reply((1, 2, 9), decode_s=8.0, passes=1, drafted=2, accepted=1),
    }
    second = {"akunu-plain": plain, "akunu-auto": plain, "mlx-lm-plain": plain}
    return runs_of(*[first, second] * times)


def some_arms():
    return (
        FakeArm("akunu-plain", ()),
        FakeArm("akunu-auto", (), plain="akunu-plain", steady=False),
        FakeArm("mlx-lm-plain", ()),
        FakeArm("mlx-lm-draft", (), plain="mlx-lm-plain"),
        FakeArm("llama.cpp-plain", ()),
    )


def rows_of(table):
    """Return a table's rows by their first cell, each by the names of its columns."""
    names = [column.name for column in table.columns]
    return {row[0]: dict(zip(names, row, strict=True)) for row in table.rows}


class TestResult:
    def test_tables(self):
        runs = some_runs(5)
        comparison = compare(some_arms(), runs, logits)
        found = tables(comparison, [Skipped("x-plain", "is | away")], runs)
        by_name = {table.name: table for table in found}
        assert list(by_name) == ["speed", "prompt", "output", "by_category", "programs", "skipped"]
        speed = rows_of(by_name["speed"])
        # An arm that decoded nothing has no row.
        assert list(speed) == ["akunu-plain", "akunu-auto", "mlx-lm-plain", "mlx-lm-draft"]
        assert speed["akunu-auto"]["tokens_per_s"] == pytest.approx(4 / 3)
        assert speed["akunu-auto"]["of_own_plain"] == pytest.approx(4 / 3)
        assert speed["akunu-auto"]["of_mlx_lm"] == pytest.approx(2.0)
        low, high = (speed["akunu-auto"][f"of_mlx_lm_{end}"] for end in ("low", "high"))
        assert 1 < low < 2 < high < 4
        assert speed["akunu-auto"]["of_mlx_lm_range"] == f"{low:.2f}-{high:.2f}"
        assert speed["akunu-plain"]["of_own_plain"] is None
        assert speed["akunu-plain"]["of_own_plain_range"] is None
        assert speed["mlx-lm-plain"]["of_mlx_lm"] is None
        assert speed["mlx-lm-draft"]["of_own_plain"] == speed["mlx-lm-draft"]["of_mlx_lm"] == 0.5
        prompt = rows_of(by_name["prompt"])
        assert prompt["akunu-plain"]["first_ms"] == 1000.0
        assert prompt["akunu-plain"]["prompt_tokens_per_s"] == 3.0
        assert prompt["akunu-plain"]["prompt_of_mlx_lm"] == 1.0
        assert prompt["mlx-lm-plain"]["prompt_of_mlx_lm"] is None
        assert prompt["akunu-plain"]["end_to_end"] == pytest.approx(4 / 3)
        output = rows_of(by_name["output"])
        auto, draft = output["akunu-auto"], output["mlx-lm-draft"]
        assert (auto["as_own_plain"], auto["as_akunu"]) == ("10/10", "10/10")
        assert auto["own_margin"] is auto["akunu_first_difference"] is None
        assert (draft["as_own_plain"], draft["own_first_difference"]) == ("0/5", 2)
        assert draft["own_margin"] == draft["akunu_margin"] == pytest.approx(0.5)
        category = {row[1]: row for row in by_name["by_category"].rows}
        assert category["mlx-lm-draft"][:5] == (
            "edit", "mlx-lm-draft", "mlx-lm-plain", 0.5, "0.50-0.50",
        )  # fmt: skip
        assert category["akunu-plain"][2:4] == ("mlx-lm-plain", pytest.approx(1.5))
        assert category["akunu-auto"][-1] == 10
        assert "mlx-lm-plain" not in category
        assert by_name["skipped"].rows == (("x-plain", "is | away"),)

    def test_too_few_items_have_no_ratio_in_any_table(self):
        """As observed: a ratio from a single item of each category."""
        runs = [*some_runs(5), *runs_of(*[run.replies for run in some_runs()])]
        runs[-2:] = [replace(run, item=item(90 + n, "prose")) for n, run in enumerate(runs[-2:])]
        comparison = compare(some_arms(), runs, logits)
        _, _, _, category, *_ = tables(comparison, [], runs)
        rows = {(row[0], row[1]): row[3:] for row in category.rows}
        nothing = (None, "not enough items", None, None)
        assert rows["prose", "akunu-auto"] == (*nothing, 2)
        assert rows["edit", "akunu-auto"][0] == pytest.approx(4 / 3)
        assert not category.detail
        few = some_runs()
        speed, prompt, _, category, *_ = tables(compare(some_arms(), few, logits), [], few)
        for table in (speed, prompt):
            for row in rows_of(table).values():
                for name, cell in row.items():
                    if name.startswith(("of_", "end_to_end", "prompt_of")):
                        assert cell in {None, "not enough items"}
        # Nothing but that sentence: files have it, a terminal does without.
        assert {row[4] for row in category.rows} == {"not enough items"}
        assert category.detail

    def test_every_ratio_on_a_terminal_has_its_interval_beside_it(self):
        runs = some_runs(5)
        for table in tables(compare(some_arms(), runs, logits), [], runs):
            names = [column.name for column in table.on_terminal().columns]
            for name in {"of_own_plain", "of_mlx_lm", "prompt_of_mlx_lm", "end_to_end"} & set(
                names
            ):
                assert names[names.index(name) + 1] == f"{name}_range"

    def test_what_times_decide_is_not_called_deterministic(self):
        comparison = compare(some_arms(), some_runs(), logits)
        found = deterministic(comparison, some_runs())
        assert set(found["total"]) == {"akunu-plain", "mlx-lm-plain", "mlx-lm-draft"}
        assert found["total"]["akunu-plain"]["tokens"] == 6
        drafting = found["total"]["mlx-lm-draft"]
        assert drafting["hit_rate"] == 0.5
        assert drafting["differing_from_own_plain"] == drafting["differing_from_akunu"] == 1
        assert found["categories"]["edit"] == found["total"]

    def test_ratios_by_name(self):
        found = timing(compare(some_arms(), some_runs(5), logits), some_runs(5))
        ratios = found["ratios"]
        assert ratios["akunu-auto/akunu-plain"].ratio == pytest.approx(4 / 3)
        assert ratios["akunu-auto/mlx-lm-plain"].ratio == pytest.approx(2.0)
        assert "akunu-plain/akunu-plain" not in ratios
        assert "mlx-lm-draft/mlx-lm-plain end to end" in ratios
        assert ratios["akunu-auto/mlx-lm-plain prompt"].ratio == 1.0
        assert found["arms"]["akunu-auto"]["tokens_per_s"] == pytest.approx(4 / 3)
        assert found["arms"]["akunu-auto"]["program"] == "akunu-auto 1.0"

    def test_rows_and_failures(self):
        runs = [*some_runs(), *runs_of({})]
        runs[1] = replace(runs[1], errors={"mlx-lm-draft": "out of rows"})
        comparison = compare(some_arms(), runs, logits)
        earlier = Failure("line 3", "not JSON")
        found = compare_findings(
            comparison,
            Runs(tuple(runs), finished=False),
            skipped=[],
            failures=[earlier],
            costs=None,
        )
        # An item that no arm decoded has no row.
        first, second = found.items
        assert (first["id"], first["category"], first["item"]["prompt"]) == (
            "i1",
            "edit",
            [1, 5, 6],
        )
        assert typed(first["replies"]["akunu-auto"], Decoded, "it") == runs[0].replies["akunu-auto"]
        assert second["errors"] == {"mlx-lm-draft": "out of rows"}
        assert found.failures == (earlier, Failure("i2, mlx-lm-draft", "out of rows"))
        differing = found.timing["arms"]["mlx-lm-draft"]["differs_from_own_plain"]
        assert differing["i1"]["index"] == 2
        assert found.timing["arms"]["akunu-auto"]["differs_from_akunu"] == {}
        assert not found.finished


class TestPeers:
    """Programs in processes of their own; what they are made of is in compare_fakes."""

    subject = Subject(path=Path("x.gguf"), longest=9, probe=(1,), logits=np.zeros((1, 8), "f4"))

    def test_an_arm_answers_from_its_own_process(self):
        (arm, other), skipped = start_peers([compare_fakes.GOOD], self.subject)
        assert skipped == (Skipped("good-draft", "no draft model"),)
        assert (arm.name, arm.plain, arm.steady) == ("good-plain", "good-plain", True)
        assert (other.name, other.plain, arm.version) == (
            "good-pid",
            "good-plain",
            "good-plain 1.0",
        )
        assert arm.decode((1, 5, 6), 2, END).token_ids == (5, 6)
        (there,) = other.decode((1,), 9, END).token_ids
        assert there != os.getpid()
        # What fails there fails here, and the program goes on.
        with pytest.raises(PeerError, match="ContractError: the arm returned no token"):
            arm.decode((1,), 2, END)
        assert arm.decode((1, 5), 2, END).token_ids == (5,)
        arm.close()
        with pytest.raises(ProcessLookupError):
            os.kill(there, 0)
        with pytest.raises(PeerError, match="has ended"):
            other.decode((1,), 9, END)

    def test_what_cannot_be_made_is_skipped_with_the_reason(self):
        arms, skipped = start_peers(
            [compare_fakes.ABSENT, compare_fakes.BROKEN, compare_fakes.CRASHING], self.subject
        )
        assert arms == ()
        assert skipped == (
            Skipped("absent-plain", "it is not installed"),
            Skipped("absent-lookup", "it is not installed"),
            Skipped("broken-plain", "could not be set up: RuntimeError: no such device"),
            Skipped("crashing-plain", "its process ended with exit code 3"),
        )

    def test_what_is_not_akunu_does_not_load_its_libraries(self):
        (arm,), _ = start_peers([compare_fakes.MODULES], self.subject)
        # Ids that say whether MLX and mlx-lm were imported.
        assert arm.decode((1,), 9, END).token_ids == (7, 7)
        arm.close()
