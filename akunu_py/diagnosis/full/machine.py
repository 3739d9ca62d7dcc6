"""The machine as the report has it: facts, and what else bears on speed."""

import re
from dataclasses import replace

from akunu_py.diagnosis.facts import Facts
from akunu_py.diagnosis.full.privacy import Privacy
from akunu_py.diagnosis.full.report import Machine
from akunu_py.diagnosis.system import System


def published(facts: Facts, privacy: Privacy) -> Facts:
    """Return facts without what is private: where folders lie, and paths in what MLX says."""
    blas = facts.blas
    if blas is not None:
        blas = replace(blas, name=privacy.clean(blas.name), reason=privacy.clean(blas.reason))
    system = privacy.clean(facts.system)
    return replace(facts, system=system, device=privacy.clean(facts.device), blas=blas, folders=())


def describe_machine(facts: Facts, system: System) -> Machine:
    """Return what the report says of a machine; `facts` are those that may be published."""
    is_mac = system.name == "Darwin"
    displays = system.output("system_profiler", "SPDisplaysDataType") if is_mac else None
    cores = re.search(r"Total Number of Cores:\s*(\d+)", displays or "")
    return Machine(
        system=facts.system,
        machine=facts.machine,
        chip=facts.chip,
        mac_model=(system.output("sysctl", "-n", "hw.model") or None) if is_mac else None,
        gpu_cores=int(cores[1]) if cores else None,
        processors=facts.processors,
        load=system.load(),
        memory_bytes=facts.memory_bytes,
        wired_limit_bytes=facts.wired_limit_bytes,
        working_set_bytes=facts.working_set_bytes,
        translated=facts.translated,
        low_power=facts.low_power,
        backend=facts.backend,
        device=facts.device,
        blas=None if facts.blas is None else facts.blas.name,
        versions=facts.versions,
    )
