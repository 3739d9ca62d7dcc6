"""What a step did, token by token: put together where somebody asks for it."""

from akunu_py.decode_stats import DraftedToken, StepDetail
from akunu_py.decoding.tree_choice import TreeChoice
from akunu_py.types import Draft, LengthTrace, Verification


def step_detail(
    draft: Draft,
    verification: Verification,
    position: int,
    tree: TreeChoice | None = None,
    length: LengthTrace | None = None,
) -> StepDetail:
    """Return the detail of a step that compared a draft with the target's choices.

    All tokens that follow an accepted one, or none, were tested. `position` is that of the step's
    first token, from the beginning of the prompt; `length` says where the length of the draft comes
    from, if that is known.
    """
    accepted = set(verification.accepted)
    drafted: list[DraftedToken] = []
    for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
        tested = parent == -1 or parent in accepted
        origin = draft.origins[node] if draft.origins else draft.source
        place = draft.places[node] if draft.places else -1
        drafted.append(
            DraftedToken(
                token,
                parent,
                node in accepted if tested else None,
                draft.confidence[node] if draft.confidence else None,
                source=None if origin == draft.source else origin,
                place=None if place < 0 else place,
            )
        )
    if not draft.tokens:
        length = None
    return StepDetail(
        position=position,
        source=draft.source,
        match_length=draft.match_length,
        drafted=tuple(drafted),
        token=verification.next_token,
        kind=verification.kind,
        origin="target",
        entropy=None if length is None else length.entropy,
        gamma=None if length is None else length.num_draft_tokens,
        tree=None if tree is None else tree.explain(),
    )
