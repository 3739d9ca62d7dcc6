"""What one engine's drafters are made from: a draft model, counts of a corpus, what it learned."""

from dataclasses import replace
from pathlib import Path

from akunu_py.drafting import (
    AutoState,
    default_num_draft_tokens,
    make_drafter,
    vocabulary_fingerprint,
)
from akunu_py.drafting.counts import CorpusModel, load_counts
from akunu_py.drafting.registry import drafter_name
from akunu_py.models.draft_model import make_token_model
from akunu_py.models.load import LoadedModel
from akunu_py.models.token_model import CachedTokenModel
from akunu_py.protocols import Drafter
from akunu_py.types import GenerationConfig


class DraftSources:
    """Makes the drafters of one engine.

    `vocabulary_size` is the number of the model's logits; `most` bounds drafts, whatever a config
    says; `counts` is a file that `akunu counts fit` wrote.

    Raises ConfigError for a draft model or counts of another vocabulary, or a file that cannot be
    read, ModelFormatError for one that is damaged.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        vocabulary_size: int,
        *,
        most: int | None = None,
        draft_model: LoadedModel | None = None,
        counts: str | Path | None = None,
    ) -> None:
        self.token_model: CachedTokenModel | None = None
        self.corpus: CorpusModel | None = None
        self._vocabulary_size = vocabulary_size
        self._most = most
        if counts is not None:
            fingerprint = vocabulary_fingerprint(loaded.tokenizer.token_texts())
            found = load_counts(counts, fingerprint, vocabulary_size)
            self.corpus = CorpusModel(found, order=found.order)
        if draft_model is not None:
            self.token_model = make_token_model(draft_model, loaded, vocabulary_size)

    def settle(self, config: GenerationConfig) -> tuple[GenerationConfig, int]:
        """Return a config with its drafter's name, and how many tokens that may draft a pass."""
        name = drafter_name(config.drafter, self.token_model)
        most = config.num_draft_tokens
        if most is None:
            most = default_num_draft_tokens(name)
        if self._most is not None:
            most = min(most, self._most)
        return replace(config, drafter=name), most

    def make(
        self, config: GenerationConfig, num_draft_tokens: int, auto_state: AutoState
    ) -> Drafter:
        """Make the drafter of a settled config for one reply; raises as `make_drafter` does."""
        assert config.drafter is not None  # noqa: S101 - `settle` gave it a name
        return make_drafter(
            config.drafter,
            num_draft_tokens=num_draft_tokens,
            config=config,
            auto_state=auto_state,
            token_model=self.token_model,
            corpus=self.corpus,
            vocabulary_size=self._vocabulary_size,
        )

    def close(self) -> None:
        """Let go of the draft model and of counts."""
        self.corpus = None
        if self.token_model is not None:
            self.token_model.close()
            self.token_model = None
