"""The machine of a report: facts that may be published."""

import re
from dataclasses import dataclass, fields, replace
from typing import Any

from akunu_py.diagnosis.facts import Facts
from akunu_py.diagnosis.full.privacy import Privacy
from akunu_py.diagnosis.system import System


@dataclass(frozen=True, slots=True)
class Machine:
    """`Facts` of a machine and some more; None means that one does not apply or is unknown."""

    system: str
    machine: str
    chip: str | None
    mac_model: str | None
    """Apple's identifier, such as "Mac16,1"."""
    gpu_cores: int | None
    processors: int
    load: float | None
    """Load at the beginning, a mean over one minute."""
    memory_bytes: int | None
    wired_limit_bytes: int | None
    working_set_bytes: int | None
    translated: bool
    low_power: bool
    backend: str | None
    device: str
    blas: str | None
    versions: dict[str, str | None]


def published(facts: Facts, privacy: Privacy) -> Facts:
    """Return facts without private parts: locations of folders, and paths in texts of MLX."""
    blas = facts.blas
    if blas is not None:
        blas = replace(blas, name=privacy.clean(blas.name), reason=privacy.clean(blas.reason))
    system = privacy.clean(facts.system)
    return replace(facts, system=system, device=privacy.clean(facts.device), blas=blas, folders=())


def describe_machine(facts: Facts, system: System) -> Machine:
    """Return the machine as it stands in the report, from facts that may be published."""
    is_mac = system.name == "Darwin"
    displays = system.output("system_profiler", "SPDisplaysDataType") if is_mac else None
    cores = re.search(r"Total Number of Cores:\s*(\d+)", displays or "")
    more: dict[str, Any] = {
        "mac_model": (system.output("sysctl", "-n", "hw.model") or None) if is_mac else None,
        "gpu_cores": int(cores[1]) if cores else None,
        "load": system.load(),
        "blas": None if facts.blas is None else facts.blas.name,
    }
    same = [one.name for one in fields(Machine) if one.name not in more]
    return Machine(**{name: getattr(facts, name) for name in same}, **more)
