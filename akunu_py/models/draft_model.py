"""A second model made ready to draft for a first one."""

import logging

from akunu_py.models.load import LoadedModel
from akunu_py.models.token_model import CachedTokenModel
from akunu_py.tokenizers.vocabulary_match import common_ids

_log = logging.getLogger(__name__)


def make_token_model(draft: LoadedModel, target: LoadedModel, target_size: int) -> CachedTokenModel:
    """Return a draft model that draws ids of the target's vocabulary.

    `target_size` is the number of the target's logits. Warns of a draft model that is no smaller
    than the target, or that has a shorter context: nothing is drafted beyond it.

    Raises ConfigError where the vocabularies differ, or for a draft model that cannot go back.
    """
    common = common_ids(target.tokenizer.token_texts(), draft.tokenizer.token_texts())
    ours, theirs = target.description, draft.description
    if theirs.parameters >= ours.parameters:
        _log.warning(
            "the draft model %s has %d million parameters and the model %s has %d million; "
            "drafting with it will hardly pay",
            theirs.name, theirs.parameters // 10**6, ours.name, ours.parameters // 10**6,
        )  # fmt: skip
    if theirs.context < ours.context:
        _log.info(
            "the draft model %s sees %d tokens, the model %d: nothing is drafted beyond the first",
            theirs.name, theirs.context, ours.context,
        )  # fmt: skip
    return CachedTokenModel(
        draft.model,
        context=theirs.context,
        common=min(common, target_size),
        target_size=target_size,
    )
