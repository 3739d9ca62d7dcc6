"""What a step by rejection did, token by token."""

from akunu_lab.verifying.verifiers import Trial, Verdict
from akunu_py.decoding.stats import step_detail
from akunu_py.values.decode_stats import DraftedToken
from akunu_py.values.types import Draft


def detail_of(draft, accepted, token, position, *, trials, origin="residual"):
    return step_detail(draft, Verdict(accepted, token, "recovered", trials, origin), position)


def test_a_token_after_the_tested_ones_keeps_its_source():
    draft = Draft.chain((5, 6, 7), "copy+model", origins=("copy", "copy", "model"))
    trials = (Trial(0, 5, 40, 0.5, 1.0, 0.25, True),)
    assert detail_of(draft, (0,), 9, 40, trials=trials).drafted[2].source == "model"


def test_what_a_verifier_tried():
    draft = Draft((1, 2, 3), (-1, -1, 0))
    trials = (Trial(1, 2, 7, 0.0, 0.5, 0.25, False), Trial(0, 1, 7, 0.25, 0.5, 0.125, True))
    detail = detail_of(draft, (0,), 6, 7, trials=trials)
    assert detail.drafted == (
        DraftedToken(1, -1, True, None, 0.25, 0.5, 0.125),
        DraftedToken(2, -1, False, None, 0.0, 0.5, 0.25),
        DraftedToken(3, 0, None),
    )
    assert detail.origin == "residual"
    assert [drafted.ratio for drafted in detail.drafted] == [0.5, 0, None]
    assert detail.to_dict()["drafted"][1]["p"] == 0.0
    assert detail_of(draft, (0,), 6, 7, trials=trials, origin="target").origin == "target"  # fmt: skip
