"""The kinds of processors that kernels are built for."""

import platform
from pathlib import Path

NATIVE = "native"
"""For exactly the machine that builds them."""

_X86 = {
    "x86-64": "cmov cx8 fpu fxsr mmx sse sse2 syscall",
    "x86-64-v2": "cx16 lahf_lm pni popcnt sse4_1 sse4_2 ssse3",
    "x86-64-v3": "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
}
"""What each level of the x86-64 psABI (3.1.1) adds, in the words of /proc/cpuinfo."""
_ARM = "aarch64"

LEVELS = (*_X86, _ARM, NATIVE)


def levels() -> list[str]:
    """Return the levels that this machine has, the best last."""
    if platform.machine() == _ARM:
        return [NATIVE, _ARM]
    found = [NATIVE]
    if platform.machine() == "x86_64":
        line = next(line for line in _cpuinfo() if line.startswith("flags"))
        for level, flags in _X86.items():
            if not set(flags.split()) <= set(line.split()):
                break
            found.append(level)
    return found


def options(level: str) -> list[str]:
    """Return the compiler's options for a level."""
    if level == NATIVE:
        # GCC 12 tunes for a Zen 4 as for its predecessor: products of many rows took 1.7 times as
        # long.
        word = "-mcpu" if platform.machine() == _ARM else "-march"
        return [f"{word}=native", "-mtune=generic"]
    return ["-march=armv8-a"] if level == _ARM else [f"-march={level}", "-mtune=generic"]


def identity(level: str) -> str:
    """Return what tells machines apart whose libraries of a level differ."""
    kinds = ("flags", "features", "model", "cpu part")
    lines = (line for line in _cpuinfo() if line.lower().startswith(kinds))
    return "\n".join(lines) if level == NATIVE else ""


def _cpuinfo() -> list[str]:
    """Return what the kernel says of the first processor."""
    return Path("/proc/cpuinfo").read_text(errors="replace").split("\n\n")[0].splitlines()
