"""Verification on integers: one rule for greedy and sampled decoding, chains and trees."""

from collections.abc import Sequence

from akunu_py.protocols import NO_CHOICE
from akunu_py.system.errors import ContractError
from akunu_py.values.types import Draft, Verification, VerificationKind


def verify_match(draft: Draft, choices: Sequence[int]) -> Verification:
    """Accept the path of the draft that agrees with the target's own choices.

    `choices[0]` is the target's token after the last committed one, `choices[i + 1]` its token
    after node i. Every emitted token is the target's choice, so no draft can change the output. For
    drafts that are not sampled no lossless rule accepts more (Leviathan et al. 2023,
    arXiv:2211.17192, section 2.3, with a one-hot q).

    A node with `NO_CHOICE` behind it is not accepted: its token comes as the target's choice, and
    the next pass begins there.

    Raises ContractError unless there is one choice for each node and one for the root.
    """
    if len(choices) != len(draft) + 1:
        raise ContractError(f"{len(choices)} choices for a draft of {len(draft)} tokens")
    if len(choices) == 1:
        return Verification((), choices[0], "bonus")
    nodes = dict(zip(zip(draft.parents, draft.tokens, strict=True), range(len(draft)), strict=True))
    inner = set(draft.parents)
    accepted: list[int] = []
    node = -1
    while (child := nodes.get((node, choices[node + 1]))) is not None:
        if choices[child + 1] == NO_CHOICE:
            break
        accepted.append(child)
        node = child
    # At a leaf nothing was rejected.
    kind: VerificationKind = "recovered" if node in inner else "bonus"
    return Verification(tuple(accepted), choices[node + 1], kind)
