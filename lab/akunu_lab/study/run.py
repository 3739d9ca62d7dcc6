"""One run of a study: a header, items saved as they are finished, and a result."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from akunu_lab.study.hashes import model_hash
from akunu_lab.study.store import ItemStore
from akunu_py.api import BenchResult, Engine, Findings

if TYPE_CHECKING:
    from akunu_lab.study.study import Study


class StudyRun:
    """A run, from its final arguments to its result; a context manager that closes its file.

    Args:
        study: has the folder of --output, whose finished items are taken over.
        arguments: final options by name, enough to repeat the run.
        inputs: hashes of other inputs, such as traces.
        engine: what is measured, if it is a model; its files are hashed.
        draft: an engine of its own that drafts for it.

    Raises ConfigError if the folder has another run's items, or cannot be used.

    """

    def __init__(
        self,
        study: "Study",
        arguments: Mapping[str, object],
        inputs: Mapping[str, object],
        *,
        engine: Engine | None,
        draft: Engine | None,
    ) -> None:
        begun = self._begun = study.begin(arguments, engine=engine, draft=draft)
        self._models: dict[str, Any] = {}
        if engine is not None:
            drafts = engine.draft_model if draft is None else draft.description
            for name, facts in {"model": engine.description, "draft_model": drafts}.items():
                found = getattr(begun, name)
                # What was never written, such as random weights, has no hash.
                if facts is not None and facts.path.exists():
                    found = replace(found, sha256=model_hash(facts.path))
                self._models[name] = found
        environment = begun.environment
        self.store = ItemStore(
            study.folder,
            {
                "command": begun.command,
                "arguments": begun.arguments,
                "inputs": inputs,
                # Models are identified by hash, so files may be moved.
                "models": [model.sha256 for model in self._models.values() if model is not None],
                "akunu": environment.akunu,
                "mlx": environment.mlx,
                "device": environment.device_name,
                "blas": environment.blas,
            },
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def result(self, findings: Findings) -> BenchResult:
        """Return the result: header and findings, and the seconds of all parts of the run."""
        found = self._begun.result(findings)
        return replace(found, seconds=self.store.seconds, **self._models)
