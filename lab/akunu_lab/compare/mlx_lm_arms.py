"""mlx-lm's own loops over the model that akunu loads: plain, and with a draft model."""

from collections.abc import Sequence

from akunu_lab.compare.arm import ComparedModel, Program, Skipped
from akunu_py.bench.mlx_lm_arm import MlxLmArm, Passes
from akunu_py.bench.runner import Arm
from akunu_py.cpu.blas import fix_threads
from akunu_py.models.load import LoadedModel
from akunu_py.models.mlx_lm_loop import PlainLoop, drafted_passes
from akunu_py.system.errors import ConfigError
from akunu_py.tokenizers.vocabulary import common_ids

PLAIN = "mlx-lm-plain"
_DRAFT = "mlx-lm-draft"
_NUM_DRAFT_TOKENS = 2
"""Tokens that `speculative_generate_step` drafts by default."""


def make_arms(subject: ComparedModel) -> Sequence[Arm | Skipped]:
    """Return the plain arm, and the arm with the draft model if there is one."""
    loaded = subject.load()
    fix_threads(subject.num_threads)
    model = loaded.model
    weights = f"{loaded.description.weights} weights as akunu loads them"

    def arm(name: str, passes: Passes, about: str) -> MlxLmArm:
        return MlxLmArm(
            name, passes, max_tokens=subject.max_tokens, end_ids=subject.end_ids, plain=PLAIN,
            about=f"{about}, {weights}",
        )  # fmt: skip

    plain = arm(PLAIN, PlainLoop(model).passes, "generate_step")
    draft = subject.load_draft()
    if draft is None:
        return [plain, Skipped(_DRAFT, "there is no draft model; give one: --draft-model")]
    reason = _mismatch(loaded, draft)
    if reason:
        return [plain, Skipped(_DRAFT, reason)]
    return [
        plain,
        arm(
            _DRAFT,
            lambda prompt, most, _text: drafted_passes(
                model, draft.model, prompt, most, _NUM_DRAFT_TOKENS
            ),
            f"speculative_generate_step, {_NUM_DRAFT_TOKENS} drafted",
        ),
    ]


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
