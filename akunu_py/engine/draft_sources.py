"""What one engine's drafters are made from: a draft model, counts of a corpus, what it learned."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from akunu_py.drafting import AutoState, default_num_draft_tokens
from akunu_py.drafting.registry import DrafterSetup, drafter_name, make
from akunu_py.models.load import LoadedModel, LoadOptions, draft_options, load_model
from akunu_py.models.token_model import CachedTokenModel, make_token_model
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
        self._loaded: LoadedModel | None = loaded
        self._vocabulary_size = vocabulary_size
        self._most = most
        self._counts = None if counts is None else Path(counts)
        # What drafters keep from reply to reply, by their names.
        self._kept: defaultdict[str, dict[str, object]] = defaultdict(dict)
        if draft_model is not None:
            self.token_model = make_token_model(draft_model, loaded, vocabulary_size)
        if counts is not None:
            # So that a file that is wrong is told now, and not when the first reply begins.
            self.make(*self.settle(GenerationConfig(drafter="corpus")), AutoState())

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
        """Make the drafter of a settled config for one reply.

        Raises as `akunu_py.drafting.registry.make` does.
        """
        assert self._loaded is not None  # noqa: S101 - a closed engine makes no reply
        assert config.drafter is not None  # noqa: S101 - `settle` gave it a name
        setup = DrafterSetup(
            num_draft_tokens,
            config,
            vocabulary_size=self._vocabulary_size,
            token_texts=self._loaded.tokenizer.token_texts,
            token_model=self.token_model,
            load_token_model=self._load_token_model,
            counts=self._counts,
            kept=self._kept[config.drafter],
            auto_state=auto_state,
        )
        return make(config.drafter, setup)

    def _load_token_model(self, path: Path) -> CachedTokenModel:
        assert self._loaded is not None  # noqa: S101 - a closed engine makes no reply
        beside = load_model(path, draft_options(path, LoadOptions()))
        return make_token_model(beside, self._loaded, self._vocabulary_size)

    def close(self) -> None:
        """Let go of the models and of what drafters kept."""
        self._loaded = None
        self._kept.clear()
        if self.token_model is not None:
            self.token_model.close()
            self.token_model = None
