"""akunu's own arms: the engine as users have it, the text of the reply included."""

from collections.abc import Sequence

from akunu_py import __version__
from akunu_py.drafting.registry import default_num_draft_tokens, kind_of, make_drafter
from akunu_py.engine.engine import Engine
from akunu_py.lab.compare.arm import Arm, Decoded, Recorder, Skipped
from akunu_py.models.load import LoadedModel
from akunu_py.values.load_options import EngineOptions
from akunu_py.values.types import DraftBudget, GenerationConfig

PLAIN = "akunu-plain"


class AkunuArm:
    """Replies of an engine with one drafter; caches and memory are emptied before each reply."""

    plain = PLAIN

    def __init__(self, engine: Engine, drafter: str, budget: DraftBudget) -> None:
        plain = drafter == "none"
        self.name = PLAIN if plain else f"akunu-{drafter}"
        self._engine = engine
        self._drafter = drafter
        self._budget: DraftBudget = budget
        # The budget's drafts depend on measured times.
        self.steady = plain or self._budget == "always"
        most = default_num_draft_tokens(drafter)
        drafts = "" if plain else f", up to {most} drafted, budget {self._budget}"
        weights = engine.description.weights
        self.version = f"akunu {__version__}"
        self.about = f"{weights} weights{drafts}"

    def decode(
        self, prompt: tuple[int, ...], max_tokens: int, end_ids: frozenset[int], /
    ) -> Decoded:
        """Continue a prompt; see the protocol."""
        config = GenerationConfig(
            max_tokens=max_tokens, seed=0, drafter=self._drafter, draft_budget=self._budget
        )
        recorder = Recorder(max_tokens, end_ids)
        self._engine.forget()
        self._engine.reset()
        recorder.start()
        with self._engine.stream(prompt, config) as events:
            for event in events:
                step = event.step
                recorder.take(
                    event.token_ids,
                    num_drafted=0 if step is None else step.num_draft_tokens,
                    num_accepted=0 if step is None else step.num_accepted_tokens,
                )
        return recorder.result()

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()


def make_arms(
    loaded: LoadedModel,
    draft_model: LoadedModel | None,
    *,
    context: int,
    drafters: Sequence[str],
    draft_budget: DraftBudget,
) -> tuple[list[Arm], list[Skipped]]:
    """Return the plain arm, an arm for each drafter, and the arms that cannot be made.

    Drafters that ask a draft model each have their own engine, so that none profits from another's
    passes over a prompt.

    Raises ConfigError for an unknown drafter.
    """
    engine = Engine(loaded, EngineOptions(context=context))
    # It would be in the time of a reply.
    engine.compares_rows = False
    arms: list[Arm] = [AkunuArm(engine, "none", draft_budget)]
    skipped: list[Skipped] = []
    for name in drafters:
        if name == "none":
            continue
        if kind_of(name).needs != "draft model":
            make_drafter(name)
            arms.append(AkunuArm(engine, name, draft_budget))
        elif draft_model is None:
            skipped.append(
                Skipped(f"akunu-{name}", "it asks a draft model; give one: --draft-model")
            )
        else:
            own = Engine(loaded, EngineOptions(context=context), draft_model=draft_model)
            own.compares_rows = False
            arms.append(AkunuArm(own, name, draft_budget))
    return arms, skipped
