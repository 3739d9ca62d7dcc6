"""What `akunu doctor` says of this machine, and some more."""

import platform
import re
import subprocess
from dataclasses import dataclass
from typing import Any

from akunu_lab.machine.asked import ask
from akunu_lab.machine.privacy import Privacy
from akunu_lab.machine.report import Finding, Machine
from akunu_py.api import ConfigError


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The machine, and what was found of it and the installation."""

    machine: Machine
    findings: tuple[Finding, ...]


def read_facts(privacy: Privacy) -> MachineFacts:
    """Ask `akunu doctor`; raises ConfigError where MLX cannot be imported."""
    return published(ask("doctor", "--no-self-test"), privacy, _of_this_mac())


def published(said: dict[str, Any], privacy: Privacy, mac: dict[str, str]) -> MachineFacts:
    """Return what may be published of the doctor's words and of a Mac's own programs'."""
    if said["backend"] is None:
        raise ConfigError(f"MLX cannot be imported: {said['device']}; akunu doctor says what to do")
    cleaned = privacy.cleaned(said)
    cores = re.search(r"Total Number of Cores:\s*(\d+)", mac.get("displays", ""))
    more = {
        "mac_model": mac.get("model"),
        "gpu_cores": int(cores[1]) if cores else None,
        "blas": cleaned["blas"] and cleaned["blas"]["name"],
    }
    same = {name: cleaned[name] for name in Machine.__slots__ if name not in more}
    return MachineFacts(
        Machine(**same, **more), tuple(Finding(**found) for found in cleaned["findings"])
    )


def _of_this_mac() -> dict[str, str]:
    """Return Apple's name of the model, and what is said of displays; {} elsewhere."""
    if platform.system() != "Darwin":
        return {}
    asked = {
        "model": ["/usr/sbin/sysctl", "-n", "hw.model"],
        "displays": ["/usr/sbin/system_profiler", "SPDisplaysDataType"],
    }
    said: dict[str, str] = {}
    for name, command in asked.items():
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        said[name] = done.stdout.strip()
    return said
