"""Drafts of constrained replies: what must come next, and what another drafter thinks."""

from akunu_py.constraints.matcher import Matcher
from akunu_py.protocols import Drafter, DrafterAround
from akunu_py.values.types import Draft

GRAMMAR = "grammar"
"""Origin of tokens that a constraint leaves no choice about."""


class ConstrainedDrafter(DrafterAround):
    """Drafts what must come next, and then what another drafter proposes and the constraint allows.

    The matcher is read here, not moved: whoever makes the reply advances it.

    Args:
        inner: the reply's drafter.
        matcher: the reply's place in its constraint.
        num_draft_tokens: upper limit of the inner drafter's part.

    """

    def __init__(self, inner: Drafter, matcher: Matcher, num_draft_tokens: int) -> None:
        super().__init__(inner)
        self._matcher = matcher
        self._most = num_draft_tokens

    def num_sure(self) -> int:
        """Return how many tokens must come next."""
        return len(self._matcher.forced_tokens())

    def propose(self, limit: int) -> Draft:
        """Draft what must come next, followed by the inner drafter's tokens if it can go on.

        Where nothing must come, draft as the inner drafter does.
        """
        sure = self._matcher.forced_tokens()[:limit]
        more = min(limit - len(sure), self._most)
        if not sure:
            return self._keep_allowed(self._inner.propose(more))
        chain = Draft.chain(sure, GRAMMAR, 0, (1.0,) * len(sure), sure=len(sure))
        if more <= 0:
            return chain
        return self._keep_allowed(_append(chain, self._inner.extend(chain, more)))

    def _keep_allowed(self, draft: Draft) -> Draft:
        """Return the part of a draft that the constraint allows."""
        if draft.is_chain:
            return draft.first(self._matcher.validate(draft.tokens))
        paths: dict[int, tuple[int, ...]] = {-1: ()}
        for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
            if (before := paths.get(parent)) is not None:
                path = (*before, token)
                if self._matcher.validate(path) == len(path):
                    paths[node] = path
        return draft.part([node for node in paths if node >= 0])


def _append(chain: Draft, more: Draft) -> Draft:
    """Return a chain followed by another one."""
    if not more.tokens:
        return chain
    origins = more.origins or (more.source,) * len(more)
    # Unknown confidence is below 0.
    confidence = more.confidence or (-1.0,) * len(more)
    return Draft.chain(
        (*chain.tokens, *more.tokens),
        more.source,
        more.match_length,
        (*chain.confidence, *confidence),
        (GRAMMAR,) * len(chain) + origins,
        length=more.length,
        places=(-1,) * len(chain) + more.places if more.places else (),
        sure=chain.sure,
        drawn=more.drawn,
    )
