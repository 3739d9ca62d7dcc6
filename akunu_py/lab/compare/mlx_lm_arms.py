"""mlx-lm's own loops over the model that akunu loads: plain, and with a draft model."""

import contextlib
from collections.abc import Callable, Generator, Sequence
from importlib.metadata import version

from akunu_py.cpu.blas import fix_threads
from akunu_py.lab.compare.arm import Arm, Decoded, Program, Recorder, Skipped, Subject
from akunu_py.models.baseline import LoopPass, drafted_passes, plain_passes
from akunu_py.models.load import LoadedModel
from akunu_py.system.errors import ConfigError
from akunu_py.tokenizers.vocabulary import common_ids

PLAIN = "mlx-lm-plain"
_DRAFT = "mlx-lm-draft"
_NUM_DRAFT_TOKENS = 2
"""Tokens that `speculative_generate_step` drafts by default."""

Passes = Callable[[tuple[int, ...], int], Generator[LoopPass, None, None]]


class MlxLmArm:
    """Replies of one of mlx-lm's loops; `passes` is called with prompt and `max_tokens`."""

    plain = PLAIN
    steady = True

    def __init__(self, name: str, about: str, passes: Passes) -> None:
        self.name = name
        self.version = f"mlx-lm {version('mlx-lm')}"
        self.about = about
        self._passes = passes

    def decode(
        self, prompt: tuple[int, ...], max_tokens: int, end_ids: frozenset[int], /
    ) -> Decoded:
        """Continue a prompt; see the protocol."""
        recorder = Recorder(max_tokens, end_ids)
        recorder.start()
        with contextlib.closing(self._passes(prompt, max_tokens)) as passes:
            for done in passes:
                if recorder.take(
                    done.token_ids, num_drafted=done.num_drafted, num_accepted=done.num_accepted
                ):
                    break
        return recorder.result()

    def close(self) -> None:
        """Do nothing: the process frees the models when it ends."""


def make_arms(subject: Subject) -> Sequence[Arm | Skipped]:
    """Return the plain arm, and the arm with the draft model if there is one."""
    loaded = subject.load()
    fix_threads(subject.num_threads)
    model = loaded.model
    weights = f"{loaded.description.weights} weights as akunu loads them"
    arms: list[Arm | Skipped] = [
        MlxLmArm(
            PLAIN,
            f"generate_step, {weights}",
            lambda prompt, most: plain_passes(model, prompt, most),
        )
    ]
    draft = subject.load_draft()
    if draft is None:
        return [*arms, Skipped(_DRAFT, "there is no draft model; give one: --draft-model")]
    reason = _mismatch(loaded, draft)
    if reason:
        return [*arms, Skipped(_DRAFT, reason)]
    arms.append(
        MlxLmArm(
            _DRAFT,
            f"speculative_generate_step, {_NUM_DRAFT_TOKENS} drafted, {weights}",
            lambda prompt, most: drafted_passes(
                model, draft.model, prompt, most, _NUM_DRAFT_TOKENS
            ),
        )
    )
    return arms


def _mismatch(target: LoadedModel, draft: LoadedModel) -> str:
    """Return why mlx-lm cannot use the draft model; it feeds the ids of each to the other."""
    ours, theirs = target.tokenizer.token_texts(), draft.tokenizer.token_texts()
    try:
        common = common_ids(ours, theirs)
    except ConfigError as error:
        return str(error)
    if common < max(len(ours), len(theirs)):
        return f"mlx-lm takes draft models of the very same vocabulary; these share {common} ids"
    return ""


MLX_LM = Program("mlx-lm", (PLAIN, _DRAFT), make_arms)
