"""The runner: order of arms, sessions, what is stored, what fails, what an interrupt leaves."""

import pytest
from bench.fake_arms import FakeArm, Memory, item
from msgspec.structs import replace

from akunu_py.bench.runner import Item, rotated, run_arms
from akunu_py.bench.workloads import Prompt
from akunu_py.system.errors import ConfigError, ModelFormatError


def asked(log):
    return [entry for entry in log if entry[0] != "forget"]


def test_every_arm_is_first_and_last_in_turn():
    orders = [rotated("abc", number) for number in range(6)]
    assert {order[0] for order in orders} == {order[-1] for order in orders} == set("abc")
    assert all(sorted(order) == list("abc") for order in orders)
    assert {orders[0][0], orders[1][-1]} == {"a"}


def test_what_arms_remember_lives_through_a_session():
    log = []
    items = [item(1, session="talk"), item(2, session="talk"), item(3)]
    run_arms([FakeArm("a", [(3,)], log=log)], items, store=Memory())
    assert [number for number, _ in log] == ["forget", 1, "forget", 1, 2, "forget", 3]


def test_rounds_answer_again():
    log, seen = [], []
    found = run_arms(
        [FakeArm("a", [(3,)], log=log)], [item(1), item(2)], store=Memory(), rounds=2,
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert seen[-1] == (4, 4)
    assert {total for _, total in seen} == {4}
    assert [number for number, _ in asked(log)] == [1, 1, 2, 1, 2]
    assert [run.item.id for run in found.items] == ["i1", "i2", "i1", "i2"]


@pytest.mark.parametrize("error", [RuntimeError("out of rows"), ModelFormatError("out of rows")])
def test_an_arm_that_fails_on_an_item_fails_there_alone(error):
    def moody(prompt):
        return [(3,), error] if prompt[0] == 1 else [(3,)]

    store, seen = Memory(), []
    found = run_arms(
        [FakeArm("a", [(3,)]), FakeArm("b", moody)], [item(1), item(2)], store=store,
        progress=lambda done, _: seen.append(done),
    )  # fmt: skip
    assert seen == [0, 1, 2, 2, 3, 4, 4]
    first, second = found.items
    assert (first.errors, set(first.replies)) == ({"b": "out of rows"}, {"a"})
    assert (second.errors, set(second.replies)) == ({}, {"a", "b"})
    assert [(one.item, one.error) for one in found.failures] == [("i1, b", "out of rows")]
    # It is tried again by the next run.
    assert list(store) == ["i2"]


def test_what_fails_with_every_arm_is_one_failure():
    arms = [FakeArm(name, [ValueError("no")]) for name in "ab"]
    found = run_arms(arms, [item(1)], store=Memory())
    assert [(one.item, one.error) for one in found.failures] == [("i1", "no")]
    assert found.answered == ()


def test_an_arm_that_its_options_forbid_ends_the_run():
    """It is found by the warm-up. The same error of a later item is that item's."""
    with pytest.raises(ConfigError, match="forbidden"):
        run_arms([FakeArm("a", [ConfigError("forbidden")])], [item(1)], store=Memory())


def test_a_stored_item_of_another_prompt_is_answered_again():
    log = []
    store = Memory()
    run_arms([FakeArm("a", [(3,)])], [item(1)], store=store)
    changed = replace(item(1), prompt=(7, 5))
    after = run_arms([FakeArm("a", [(9,)], log=log)], [changed], store=store)
    assert [number for number, _ in asked(log)] == [7, 7]
    assert after.items[0].item == changed


class PickyTokenizer:
    """A character is a token; a moth cannot be encoded."""

    has_chat_template = False

    def encode(self, text, *, parse_special=False):
        if "moth" in text:
            raise ValueError("no such character")
        return [] if text == "nothing" else [1] * len(text)


def test_prompts_that_cannot_be_taken_are_failures():
    texts = {"good": "abcdefg", "long": "abcdefgh", "odd": "moth", "empty": "nothing"}
    prompts = [Prompt(name, "edit", "raw", text, turn=2) for name, text in texts.items()]
    items, failures = Item.encoded(prompts, PickyTokenizer(), 8)
    assert [(one.id, one.prompt, one.turn) for one in items] == [("good", (1,) * 7, 2)]
    said = {one.item: one.error for one in failures}
    assert "has 8 tokens and the context holds 8, the reply included" in said["long"]
    assert said["odd"] == "no such character"
    assert "has no tokens" in said["empty"]
    _, failures = Item.encoded(prompts[:1], PickyTokenizer(), 8, room=5)
    assert "the context holds 8, 5 of the reply included" in failures[0].error
