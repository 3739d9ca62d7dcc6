"""Which ids two vocabularies share, and what is said where they differ."""

import pytest

from akunu_py.system.errors import ConfigError
from akunu_py.tokenizers.vocabulary import common_ids

TEXTS = ["<unk>", "a", "b", "ab"]


def test_equal_vocabularies_share_every_id():
    assert common_ids(TEXTS, TEXTS) == 4


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        ([*TEXTS, "[PAD4]", "[PAD5]"], TEXTS),
        (TEXTS, [*TEXTS, "[PAD4]"]),
        ([*TEXTS, "[PAD4]"], [*TEXTS, "", ""]),
        ([*TEXTS, "<|im_start|>"], TEXTS),
        (TEXTS, [*TEXTS, "<|im_start|>", "<|im_end|>"]),
    ],
)
def test_padding_and_tokens_added_behind_do_not_count(target, draft):
    assert common_ids(target, draft) == 4


def test_padding_between_tokens_is_equal_under_any_name():
    assert common_ids(["a", "[PAD1]", "c"], ["a", "", "c"]) == 3
    with pytest.raises(ConfigError, match="id 1 is '\\[PAD1\\]' for the model and 'x'"):
        common_ids(["a", "[PAD1]", "c"], ["a", "x", "c"])


def test_the_first_difference_is_named_with_both_texts():
    with pytest.raises(ConfigError, match="id 2 is 'b' for the model and 'B' for the draft model"):
        common_ids(TEXTS, ["<unk>", "a", "B", "AB"])


def test_nothing_in_common():
    with pytest.raises(ConfigError, match="share no token"):
        common_ids(TEXTS, ["", "[PAD1]"])
