"""The door for packages that extend akunu: drafters, verifiers, commands, measurements.

What is here stays, or a release note says what takes its place; everything else in `akunu_py` may
change any day. docs/plug-ins.md is the page for authors, with a line for each name, and
`akunu_py.testing` has toy targets for their tests. akunu's own laboratory imports nothing else.
"""

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from akunu_py.bench.bootstrap import Ratio
    from akunu_py.bench.engine_arm import EngineArm
    from akunu_py.bench.figures import ArmFigures
    from akunu_py.bench.mlx_lm_arm import MlxLmArm
    from akunu_py.bench.reply import MeasuredReply, Pass
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
    from akunu_py.decoding.budget import Budget
    from akunu_py.decoding.loop import Verifier, decode
    from akunu_py.drafting.auto import AutoDrafter
    from akunu_py.drafting.draft_model import DraftModelDrafter
    from akunu_py.drafting.memory import vocabulary_fingerprint
    from akunu_py.drafting.ngram import NgramDrafter
    from akunu_py.drafting.prediction_head import PredictionHeadDrafter
    from akunu_py.drafting.registry import DrafterKind, DrafterSetup, make_drafter
    from akunu_py.engine.engine import Engine
    from akunu_py.engine.lent_model import LentModel
    from akunu_py.protocols import Drafter, Target, Tokenizer
    from akunu_py.system.errors import (
        AkunuError,
        ConfigError,
        ContextOverflowError,
        ContractError,
    )
    from akunu_py.tokenizers.vocabulary import common_ids
    from akunu_py.values.cost_curve import CostCurve
    from akunu_py.values.generation_config import SamplingConfig, VerifierOptions
    from akunu_py.values.keyed_noise import NoiseKey, Purpose
    from akunu_py.values.option_fields import Count, Number, option
    from akunu_py.values.types import (
        DecodeStats,
        Draft,
        GenerationConfig,
        LengthTrace,
        TreePrices,
        Verification,
    )

__all__ = [
    "AkunuError",
    "Arm",
    "ArmFigures",
    "AutoDrafter",
    "BenchResult",
    "Budget",
    "Column",
    "Command",
    "CommandGroup",
    "ConfigError",
    "ContextOverflowError",
    "ContractError",
    "CostCurve",
    "Costs",
    "Count",
    "DecodeStats",
    "Draft",
    "DraftModelDrafter",
    "Drafter",
    "DrafterKind",
    "DrafterSetup",
    "Engine",
    "EngineArm",
    "Failure",
    "Findings",
    "GenerationConfig",
    "Item",
    "ItemReplies",
    "LengthTrace",
    "LentModel",
    "MeasuredReply",
    "Measurement",
    "MlxLmArm",
    "NgramDrafter",
    "NoiseKey",
    "Number",
    "Pass",
    "PredictionHeadDrafter",
    "Prompt",
    "Purpose",
    "Ratio",
    "Row",
    "SamplingConfig",
    "Table",
    "Target",
    "Tokenizer",
    "TreePrices",
    "Verification",
    "Verifier",
    "VerifierOptions",
    "common_ids",
    "decode",
    "load_tokenizer",
    "make_drafter",
    "measuring",
    "option",
    "run_arms",
    "run_speed",
    "vocabulary_fingerprint",
]

_NAMES = {
    "bench.bootstrap": ("Ratio",),
    "bench.engine_arm": ("EngineArm",),
    "bench.figures": ("ArmFigures",),
    "bench.mlx_lm_arm": ("MlxLmArm",),
    "bench.reply": ("MeasuredReply", "Pass"),
    "bench.result_file": ("BenchResult", "Costs", "Failure"),
    "bench.rows": ("Row",),
    "bench.run": ("Findings",),
    "bench.runner": ("Arm", "Item", "ItemReplies", "run_arms"),
    "bench.speed": ("run_speed",),
    "bench.tables": ("Column", "Table"),
    "bench.workloads": ("Prompt",),
    "cli.command": ("Command",),
    "cli.group": ("CommandGroup",),
    "cli.measuring": ("Measurement", "load_tokenizer", "measuring"),
    "decoding.budget": ("Budget",),
    "decoding.loop": ("Verifier", "decode"),
    "drafting.auto": ("AutoDrafter",),
    "drafting.draft_model": ("DraftModelDrafter",),
    "drafting.memory": ("vocabulary_fingerprint",),
    "drafting.ngram": ("NgramDrafter",),
    "drafting.prediction_head": ("PredictionHeadDrafter",),
    "drafting.registry": ("DrafterKind", "DrafterSetup", "make_drafter"),
    "engine.engine": ("Engine",),
    "engine.lent_model": ("LentModel",),
    "protocols": ("Drafter", "Target", "Tokenizer"),
    "system.errors": (
        "AkunuError",
        "ConfigError",
        "ContextOverflowError",
        "ContractError",
    ),
    "tokenizers.vocabulary": ("common_ids",),
    "values.cost_curve": ("CostCurve",),
    "values.generation_config": ("SamplingConfig", "VerifierOptions"),
    "values.keyed_noise": ("NoiseKey", "Purpose"),
    "values.option_fields": ("Count", "Number", "option"),
    "values.types": (
        "DecodeStats",
        "Draft",
        "GenerationConfig",
        "LengthTrace",
        "TreePrices",
        "Verification",
    ),
}
"""Names by module. A name is imported when it is first used: help needs no MLX."""

_MODULES = {name: f"akunu_py.{module}" for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
