"""The kinds of processors that kernels are built for."""

import platform
from pathlib import Path

_X86 = {
    "x86-64": "cmov cx8 fpu fxsr mmx sse sse2 syscall",
    "x86-64-v2": "cx16 lahf_lm pni popcnt sse4_1 sse4_2 ssse3",
    "x86-64-v3": "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
    "x86-64-v4-vnni": "avx512_vnni",
}
"""What each level of the x86-64 psABI (3.1.1) adds, in the words of /proc/cpuinfo. The last one is
akunu's: with VNNI, products of whole numbers take half of the instructions."""

_OPTIONS = {
    # GCC 12 tunes for a Zen 4 as for its predecessor: products of many rows took 1.7 times as long.
    **{level: ["-mtune=generic", f"-march={level}"] for level in (*_X86, "native")},
    "x86-64-v4-vnni": ["-mtune=generic", "-march=x86-64-v4", "-mavx512vnni"],
    "aarch64": ["-march=armv8-a"],
}
LEVELS = tuple(_OPTIONS)
"""The last but one, native, is for exactly the machine that builds it."""


def levels() -> list[str]:
    """Return the levels that this machine has, the best last."""
    found = ["native"]
    if platform.machine() == "aarch64":
        found.append("aarch64")
    elif platform.machine() == "x86_64":
        flags = next(line for line in _cpuinfo() if line.startswith("flags")).split()
        for level, needed in _X86.items():
            if not set(needed.split()) <= set(flags):
                break
            found.append(level)
    return found


def options(level: str) -> list[str]:
    """Return the compiler's options for a level."""
    if level == "native" and platform.machine() == "aarch64":
        return ["-mcpu=native"]
    return _OPTIONS[level]


def identity(level: str) -> str:
    """Return a text that tells machines apart whose libraries of a level differ."""
    return "\n".join(_cpuinfo()) if level == "native" else ""


def _cpuinfo() -> list[str]:
    """Return Linux's description of the first processor, without values that change."""
    lines = Path("/proc/cpuinfo").read_text(errors="replace").split("\n\n")[0].splitlines()
    return [
        line for line in lines if line.lower().startswith(("flags", "feat", "model", "cpu part"))
    ]
