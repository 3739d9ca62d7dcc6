"""Embeddings of an engine: texts checked and tokenized, and vectors of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from akunu_py.engine.request_checks import Prompt, check_length, ids_of
from akunu_py.models.cached_rows import PREFILL_CHUNK
from akunu_py.models.pooling import Pooling
from akunu_py.models.session import Session
from akunu_py.protocols import Tokenizer
from akunu_py.system.errors import ConfigError, ContextOverflowError

if TYPE_CHECKING:
    from akunu_py.models.embedding import EmbeddingSteps


@dataclass(frozen=True, slots=True)
class CheckedTexts:
    """Texts to embed, as an engine has checked them."""

    texts: tuple[tuple[int, ...], ...]
    pooling: Pooling
    dimensions: int | None = None

    # As of a reply without a prompt.
    prompt: ClassVar[tuple[int, ...]] = ()
    plan: ClassVar[None] = None
    matcher: ClassVar[None] = None

    def compile(self) -> None:
        """Do nothing: there is no constraint."""

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.texts))

    @property
    def rows(self) -> int:
        """Rows of the longest text, or of the largest pass that texts share."""
        return max(min(self.num_tokens, PREFILL_CHUNK), max(map(len, self.texts), default=0))


@dataclass(frozen=True, slots=True)
class TextChecks:
    """What decides the tokens of texts: a model's tokenizer and pooling, and its limits."""

    tokenizer: Tokenizer
    pooling: Pooling
    context: int
    vocabulary_size: int

    def check(
        self, texts: Sequence[Prompt], dimensions: int | None, prompt_name: str | None,
        *, truncate: bool,
    ) -> CheckedTexts:  # fmt: skip
        """Return the tokens of texts; raises as `Engine.embed`, but not for `dimensions`."""
        prompts = self.pooling.prompts
        if prompt_name is not None and prompt_name not in prompts:
            known = ", ".join(prompts) or "none"
            raise ConfigError(
                f"prompt_name is {prompt_name!r:.60}, and the model's prompts are: {known}; write "
                "the prompt into the texts, or leave prompt_name out"
            )
        prompt = prompts.get(prompt_name or self.pooling.default_prompt, "")
        found = (
            self._ids(text, prompt, f"text {number}", truncate=truncate)
            for number, text in enumerate(texts)
        )
        return CheckedTexts(tuple(found), self.pooling, dimensions)

    def _ids(self, text: Prompt, prompt: str, place: str, *, truncate: bool) -> tuple[int, ...]:
        context = self.context
        if isinstance(text, str):
            text = prompt + text
            if not truncate:
                check_length([text], self.tokenizer, context, parse_special=True)
        ids = ids_of(text, self.tokenizer, self.vocabulary_size, parse_special=True)
        end = self.pooling.end
        if isinstance(text, str) and end is not None and ids[-1:] != [end]:
            ids.append(end)
        if not ids:
            raise ConfigError(f"{place} is empty; give some text, or leave it out")
        if len(ids) <= context:
            return tuple(ids)
        if not truncate:
            raise ContextOverflowError(
                f"{place} has {len(ids):,} tokens and the context holds {context:,}; split the "
                "text, or leave out what does not fit (truncate)",
                num_tokens=len(ids),
                context=context,
            )
        # The last token pools the text if it is one that ends texts.
        ends = ids[-1] in self.tokenizer.control_tokens()
        return tuple(ids[: context - ends] + ids[-1:] * ends)


def embedding_steps(call: CheckedTexts, session: Session) -> "EmbeddingSteps":
    """Make the embeddings of checked texts in steps; raises ConfigError as `Engine.embed` does."""
    if not call.texts:
        return np.zeros((0, call.dimensions or 0), np.float32)
    vectors = yield from session.embedding(call.texts, call.pooling.kind)
    return normalised(vectors, call.dimensions)


def normalised(vectors: NDArray[np.float32], dimensions: int | None = None) -> NDArray[np.float32]:
    """Return normalised vectors, of the first `dimensions` numbers of each.

    Raises ConfigError for more than there are.
    """
    width = vectors.shape[1]
    if dimensions is not None and not 1 <= dimensions <= width:
        raise ConfigError(f"dimensions is {dimensions}; this model's embeddings have {width}")
    vectors = vectors[:, :dimensions]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    found: NDArray[np.float32] = vectors / np.maximum(lengths, np.float32(1e-12))
    return found
