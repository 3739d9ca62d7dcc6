"""akunu's own arms: the engine as users have it, the text of the reply included."""

from collections.abc import Sequence

from akunu_py import __version__
from akunu_py.bench.compare.arm import Arm, Decoded, Program, Recorder, Skipped, Subject
from akunu_py.drafting.registry import WITH_DRAFT_MODEL, default_num_draft_tokens, make_drafter
from akunu_py.engine.engine import Engine
from akunu_py.types import DraftBudget, GenerationConfig

PLAIN = "akunu-plain"


class AkunuArm:
    """Replies of an engine with one drafter, caches and memory empty before each."""

    plain = PLAIN

    def __init__(self, engine: Engine, drafter: str, subject: Subject) -> None:
        plain = drafter == "none"
        self.name = PLAIN if plain else f"akunu-{drafter}"
        self._engine = engine
        self._drafter = drafter
        self._budget: DraftBudget = subject.draft_budget
        # What the budget drafts depends on times that it measures.
        self.steady = plain or self._budget == "always"
        most = default_num_draft_tokens(drafter)
        drafts = "" if plain else f", up to {most} drafted, budget {self._budget}"
        weights = subject.loaded.description.weights
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


def make_arms(subject: Subject) -> Sequence[Arm | Skipped]:
    """Return the plain arm and one for each drafter.

    Drafters that ask a draft model have an engine each: one's passes over a prompt must not serve
    the other.

    Raises ConfigError for an unknown drafter.
    """
    engine = Engine(subject.loaded, context=subject.context)
    arms: list[Arm | Skipped] = [AkunuArm(engine, "none", subject)]
    for name in subject.drafters:
        if name == "none":
            continue
        if name not in WITH_DRAFT_MODEL:
            make_drafter(name)
            arms.append(AkunuArm(engine, name, subject))
        elif subject.draft_model is None:
            arms.append(Skipped(f"akunu-{name}", "it asks a draft model; give one: --draft-model"))
        else:
            own = Engine(subject.loaded, context=subject.context, draft_model=subject.draft_model)
            arms.append(AkunuArm(own, name, subject))
    return arms


AKUNU = Program("akunu", (PLAIN,), make_arms)
