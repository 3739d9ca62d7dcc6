"""mlx-lm's own loops over the model that akunu loads: plain, and with a draft model."""

from collections.abc import Sequence

from akunu_lab.compare.arm import ComparedModel, Program, Skipped
from akunu_py.api import Arm, Engine, MlxLmArm, load_tokenizer

PLAIN = "mlx-lm-plain"
_DRAFT = "mlx-lm-draft"

_NUM_DRAFT_TOKENS = 2
"""Tokens that `speculative_generate_step` drafts by default."""


def make_arms(subject: ComparedModel) -> Sequence[Arm | Skipped]:
    """Return the plain arm, and the arm with the draft model if there is one."""
    engine, skipped = _load(subject)
    from akunu_lab.compare.drafted_loop import DraftedArm  # MLX, behind akunu and its kernels

    weights = f"{engine.description.weights} weights as akunu loads them"
    plain = MlxLmArm(
        PLAIN, engine, max_tokens=subject.max_tokens, end_ids=subject.end_ids,
        about=f"generate_step, {weights}",
    )  # fmt: skip
    if skipped is not None:
        return [plain, skipped]
    return [
        plain,
        DraftedArm(
            _DRAFT, engine, max_tokens=subject.max_tokens, plain=PLAIN, end_ids=subject.end_ids,
            about=f"speculative_generate_step, {_NUM_DRAFT_TOKENS} drafted, {weights}",
            num_draft_tokens=_NUM_DRAFT_TOKENS,
        ),
    ]  # fmt: skip


def _load(subject: ComparedModel) -> tuple[Engine, Skipped | None]:
    """Return the engine, with the draft model unless mlx-lm cannot use it, and why not."""
    if subject.draft_path is None:
        reason = "there is no draft model; give one: --draft-model"
        return subject.load(), Skipped(_DRAFT, reason)
    ours, theirs = (
        load_tokenizer(path).token_texts() for path in (subject.path, subject.draft_path)
    )
    if ours == theirs:
        return subject.load(drafts=True), None
    # It feeds the ids of each model to the other.
    reason = "mlx-lm takes draft models of the very same vocabulary, and this one has another"
    return subject.load(), Skipped(_DRAFT, reason)


MLX_LM = Program("mlx-lm", (PLAIN, _DRAFT), make_arms)
