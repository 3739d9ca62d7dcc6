"""The door for packages that extend akunu: drafters, verifiers, commands, measurements.

What is here stays, or a release note says what takes its place; everything else in `akunu_py` may
change any day. docs/plug-ins.md is the page for authors, with a line for each name, and
`akunu_py.testing` has toy targets for their tests. akunu's own laboratory imports nothing else.
"""

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from akunu_py.engine.engine import Engine
    from akunu_py.protocols import Drafter, Target, Tokenizer
    from akunu_py.system.errors import AkunuError, ConfigError, ContractError
    from akunu_py.values.types import Draft, GenerationConfig

__all__ = [
    "AkunuError",
    "ConfigError",
    "ContractError",
    "Draft",
    "Drafter",
    "Engine",
    "GenerationConfig",
    "Target",
    "Tokenizer",
]

# Commands that measure, and what they measure with.
if TYPE_CHECKING:
    from akunu_py.bench.bootstrap import Ratio
    from akunu_py.bench.engine_arm import EngineArm
    from akunu_py.bench.figures import ArmFigures
    from akunu_py.bench.mlx_lm_arm import MlxLmArm
    from akunu_py.bench.reply import MeasuredReply, Recorder
    from akunu_py.bench.result_file import BenchResult, Costs, Failure
    from akunu_py.bench.rows import Row
    from akunu_py.bench.run import Findings
    from akunu_py.bench.runner import Arm, Item, ItemReplies, run_arms
    from akunu_py.bench.speed import run_speed
    from akunu_py.bench.tables import Column, Table
    from akunu_py.bench.workloads import Prompt
    from akunu_py.cli.command import Command
    from akunu_py.cli.group import CommandGroup
    from akunu_py.cli.measuring import Measurement, load_tokenizer, measuring
    from akunu_py.cli.terminal import printable
    from akunu_py.cpu.blas import fix_threads
    from akunu_py.system.extras import install_command
    from akunu_py.tokenizers.vocabulary import common_ids

__all__ += [
    "Arm",
    "ArmFigures",
    "BenchResult",
    "Column",
    "Command",
    "CommandGroup",
    "Costs",
    "EngineArm",
    "Failure",
    "Findings",
    "Item",
    "ItemReplies",
    "MeasuredReply",
    "Measurement",
    "MlxLmArm",
    "Prompt",
    "Ratio",
    "Recorder",
    "Row",
    "Table",
    "common_ids",
    "fix_threads",
    "install_command",
    "load_tokenizer",
    "measuring",
    "printable",
    "run_arms",
    "run_speed",
]

_MEASURING = {
    **dict.fromkeys(("MeasuredReply", "Recorder"), "akunu_py.bench.reply"),
    **dict.fromkeys(("BenchResult", "Costs", "Failure"), "akunu_py.bench.result_file"),
    **dict.fromkeys(("Arm", "Item", "ItemReplies", "run_arms"), "akunu_py.bench.runner"),
    **dict.fromkeys(("Column", "Table"), "akunu_py.bench.tables"),
    **dict.fromkeys(("Measurement", "load_tokenizer", "measuring"), "akunu_py.cli.measuring"),
    "ArmFigures": "akunu_py.bench.figures",
    "Command": "akunu_py.cli.command",
    "CommandGroup": "akunu_py.cli.group",
    "EngineArm": "akunu_py.bench.engine_arm",
    "Findings": "akunu_py.bench.run",
    "MlxLmArm": "akunu_py.bench.mlx_lm_arm",
    "Prompt": "akunu_py.bench.workloads",
    "Ratio": "akunu_py.bench.bootstrap",
    "Row": "akunu_py.bench.rows",
    "common_ids": "akunu_py.tokenizers.vocabulary",
    "fix_threads": "akunu_py.cpu.blas",
    "install_command": "akunu_py.system.extras",
    "printable": "akunu_py.cli.terminal",
    "run_speed": "akunu_py.bench.speed",
}

_MODULES = {
    **_MEASURING,
    **dict.fromkeys(("AkunuError", "ConfigError", "ContractError"), "akunu_py.system.errors"),
    **dict.fromkeys(("Draft", "GenerationConfig"), "akunu_py.values.types"),
    **dict.fromkeys(("Drafter", "Target", "Tokenizer"), "akunu_py.protocols"),
    "Engine": "akunu_py.engine.engine",
}
"""Modules of the names. A name is imported when it is first used: help needs no MLX."""

# Trees of drafted tokens, and searches.
__all__ += ["ContextOverflowError", "LentModel", "TreePrices"]
_MODULES |= {
    "ContextOverflowError": "akunu_py.system.errors",
    "LentModel": "akunu_py.engine.lent_model",
    "TreePrices": "akunu_py.values.types",
}
if TYPE_CHECKING:
    from akunu_py.engine.lent_model import LentModel
    from akunu_py.system.errors import ContextOverflowError
    from akunu_py.values.types import TreePrices

# Drafting and verifying.
if TYPE_CHECKING:
    from akunu_py.decoding.budget import Budget
    from akunu_py.decoding.loop import Verifier, decode
    from akunu_py.drafting.auto import AutoDrafter
    from akunu_py.drafting.draft_model import DraftModelDrafter
    from akunu_py.drafting.memory import vocabulary_fingerprint
    from akunu_py.drafting.ngram import NgramDrafter
    from akunu_py.drafting.prediction_head import PredictionHeadDrafter
    from akunu_py.drafting.registry import DrafterKind, DrafterSetup, make_drafter
    from akunu_py.protocols import as_drafter
    from akunu_py.system.errors import ModelFormatError
    from akunu_py.values.cost_curve import CostCurve
    from akunu_py.values.generation_config import SamplingConfig
    from akunu_py.values.keyed_noise import NoiseKey, Purpose
    from akunu_py.values.types import DecodeStats, LengthTrace, Verification

__all__ += [
    "AutoDrafter",
    "Budget",
    "CostCurve",
    "DecodeStats",
    "DraftModelDrafter",
    "DrafterKind",
    "DrafterSetup",
    "LengthTrace",
    "ModelFormatError",
    "NgramDrafter",
    "NoiseKey",
    "PredictionHeadDrafter",
    "Purpose",
    "SamplingConfig",
    "Verification",
    "Verifier",
    "as_drafter",
    "decode",
    "make_drafter",
    "vocabulary_fingerprint",
]

_MODULES |= {
    **dict.fromkeys(("Verifier", "decode"), "akunu_py.decoding.loop"),
    **dict.fromkeys(("DrafterKind", "DrafterSetup", "make_drafter"), "akunu_py.drafting.registry"),
    **dict.fromkeys(("NoiseKey", "Purpose"), "akunu_py.values.keyed_noise"),
    **dict.fromkeys(("DecodeStats", "LengthTrace", "Verification"), "akunu_py.values.types"),
    "AutoDrafter": "akunu_py.drafting.auto",
    "Budget": "akunu_py.decoding.budget",
    "CostCurve": "akunu_py.values.cost_curve",
    "DraftModelDrafter": "akunu_py.drafting.draft_model",
    "ModelFormatError": "akunu_py.system.errors",
    "NgramDrafter": "akunu_py.drafting.ngram",
    "PredictionHeadDrafter": "akunu_py.drafting.prediction_head",
    "SamplingConfig": "akunu_py.values.generation_config",
    "as_drafter": "akunu_py.protocols",
    "vocabulary_fingerprint": "akunu_py.drafting.memory",
}


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
