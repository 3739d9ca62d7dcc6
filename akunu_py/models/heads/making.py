"""What draws tokens with a head, whichever kind of head it is."""

from akunu_py.models.heads.assistant import Assistant
from akunu_py.models.heads.assistant_model import AssistantTokenModel
from akunu_py.models.heads.block_model import BlockTokenModel
from akunu_py.models.heads.dflash import DFlashHead
from akunu_py.models.heads.token_model import CachedHead, HeadTokenModel

Head = CachedHead | Assistant
"""A head with its weights."""

HeadModel = HeadTokenModel | AssistantTokenModel
"""A head that draws tokens."""


def make_head_model(head: Head, *, context: int, vocabulary_size: int) -> HeadModel:
    """Return a model that draws with a head; `vocabulary_size` is that of the target's logits.

    Raises ConfigError for a head whose caches cannot drop slots.
    """
    if isinstance(head, Assistant):
        return AssistantTokenModel(head, context=context, vocabulary_size=vocabulary_size)
    if isinstance(head, DFlashHead):
        return BlockTokenModel(head, context=context, vocabulary_size=vocabulary_size)
    return HeadTokenModel(head, context=context, vocabulary_size=vocabulary_size)
