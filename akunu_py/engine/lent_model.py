"""A model that is lent for work that is not a reply: what follows texts, and drafts behind them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from akunu_py.models.cached_rows import Progress
from akunu_py.models.expansion import dense_arrays
from akunu_py.models.session import Session
from akunu_py.sampling.sampler import Sampler
from akunu_py.sampling.transforms import TransformChain
from akunu_py.values.load_options import KVBits
from akunu_py.values.types import Draft, GenerationConfig

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx import nn


@dataclass(eq=False, repr=False)
class LentModel:
    """A model with caches of its own, which hold the text that it read last.

    `shared` is the number of ids, from 0 on, that mean the same as the engine's: all of them,
    except of a draft model of another vocabulary. `draft_model` is the engine's, if it has one.
    """

    model: "nn.Module"
    context: int
    shared: int
    kv_bits: KVBits | None = None
    draft_model: "LentModel | None" = None
    _text: list[int] = field(default_factory=list, init=False)
    _marks: dict[str, int] = field(default_factory=dict, init=False)
    _passed: Draft | None = field(default=None, init=False)
    """The draft of the last pass, whose rows are not committed yet."""

    @cached_property
    def _session(self) -> Session:
        return Session(self.model, context=self.context, kv_bits=self.kv_bits)

    @property
    def can_go_back(self) -> bool:
        """Whether the caches can drop a part of a text; if not, one text can go on, no more."""
        return self._session.rows.rollback.supported

    def read(self, text: Sequence[int], progress: Progress | None = None) -> int:
        """Hold a text of at least one token, for drafts behind it; return how many were read.

        Only what the caches do not hold is read, and the last token not before a pass: they keep
        the common beginning with the last text and with the draft behind it.
        """
        session, before = self._session, len(self._text)
        pairs = zip(self._text, text, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if self._passed is not None:
            draft, self._passed = self._passed, None
            kept = list(range(len(draft)))
            if not draft.is_chain:
                # Of a tree the rows of one path can stay.
                walked = draft.walk(text[before:] if same == before else ())
                kept = [node for _, node in walked if node is not None]
            session.commit(kept)
        # Where caches cannot drop rows: back to the first text, and to where texts last parted.
        self._marks.setdefault("first", len(text) - 1)
        if same < before:
            self._marks["parted"] = same
        size = session.vocabulary_size
        chain = TransformChain.from_config(GenerationConfig(temperature=1.0), size)
        held: list[int] = []
        for rows in session.beginning(text, Sampler(chain, 0, size), self.context, self._marks):
            held.append(rows)
            if progress:
                progress(rows, len(text) - 1)
        self._text = list(text)
        return held[-1] - held[0]

    def takes_tree(self, draft: Draft) -> bool:
        """Return whether `distributions` takes a tree behind the text; any chain it does."""
        return draft.is_chain or self._session.takes_tree(draft)

    def distributions(self, draft: Draft) -> NDArray[np.float64]:
        """Run one pass; return what follows the text and each token of a draft behind it.

        Row 0 has the probabilities of the next token after the text, row i + 1 those after the
        draft's token i, and of the tokens before it on its path.
        """
        if self._passed is not None:
            self.read(self._text)
        found = self._session.distributions(self._text[-1], draft)
        self._passed = draft
        return found

    def dense_arrays(self) -> "dict[str, mx.array]":
        """Return the parameters in float32 by their paths, quantized ones expanded.

        The model itself is unchanged. Raises ConfigError for layers of more than one matrix.
        """
        return dense_arrays(self.model)
