"""Facts from faked machines, and what is found wrong with them."""

import tomllib
from dataclasses import replace

from machines import FAST, FOLDERS, GB, OWN, VERSIONS, linux, mac
from shared_files import ROOT

from akunu_py.diagnosis.advice import findings
from akunu_py.diagnosis.facts import read_facts
from akunu_py.diagnosis.self_test import SelfTest
from akunu_py.diagnosis.system import Device, System

GOOD = SelfTest(
    replies=6, different=0, row_bits="equal", drafted=100, accepted=60, plain_tokens_per_s=50.0, tokens_per_s=70.0,
    seconds=10.0,
)  # fmt: skip


def found(system, test=None):
    return findings(read_facts(system, "1.2.3", FOLDERS), test)


def texts(system, test=None):
    return [(finding.severity, finding.text) for finding in found(system, test)]


def test_a_mac():
    facts = read_facts(mac(), "1.2.3", FOLDERS)
    assert facts.system == "macOS 26.1"
    assert (facts.chip, facts.backend, facts.device) == ("Apple M4", "metal", "Apple M4")
    assert facts.memory_bytes == 32 * 2**30
    assert facts.wired_limit_bytes is None
    assert facts.working_set_bytes == 22_906_503_168
    assert not facts.translated
    assert facts.blas is None
    assert facts.versions == {"akunu": "1.2.3", "python": "3.12.1", **VERSIONS}
    assert texts(mac(), GOOD) == [("note", "models and their contexts should take 22.9 GB at most")]


def test_a_mac_whose_wired_limit_was_raised():
    assert read_facts(mac(iogpu__wired_limit_mb=28000), "1", {}).wired_limit_bytes == 28000 * 2**20
    assert texts(mac(iogpu__wired_limit_mb=28000)) == []
    ((severity, text),) = texts(mac(iogpu__wired_limit_mb=32000))
    assert severity == "warning"
    assert text.startswith("the GPU may wire 33.6 GB of 34.4 GB")


def test_packages_that_are_too_old_or_too_new():
    system = linux(found=OWN, needs={"mlx": ">=0.32.2,<0.33", "numpy": ">=0.9", "click": ">=99"})
    for version in ("0.32.1.dev3", "0.31", "0.33", "0.33.0.dev1", "1.0rc1"):
        system.versions["mlx"] = version
        assert texts(system)[0] == ("error", f"mlx is {version}, and akunu needs mlx>=0.32.2,<0.33")
        assert found(system)[0].advice == "Run: pip install --upgrade 'mlx>=0.32.2,<0.33'"
    for version in ("0.32.2", "0.32.10", "0.32.99.dev1"):
        system.versions["mlx"] = version
        assert all(severity != "error" for severity, _ in texts(system))
    system.needs = {"mlx": ">=0.32.2"}
    for version in ("0.33", "1.0rc1"):
        system.versions["mlx"] = version
        assert all(severity != "error" for severity, _ in texts(system))


def test_metadata_in_any_order_of_its_versions(monkeypatch, tmp_path):
    """As hatchling, setuptools and poetry write them."""
    lines = [
        "mlx[cpu]<0.33,>=0.32.2; sys_platform != 'darwin'", "mlx-lm >=0.32.2, <0.33",
        "huggingface_hub (>=1.31)", "numpy", "click ; extra == 'x'",
    ]  # fmt: skip
    metadata = tmp_path / "akunu_py-1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    fields = ["Metadata-Version: 2.1", "Name: akunu-py", "Version: 1"]
    metadata.write_text("\n".join([*fields, *(f"Requires-Dist: {line}" for line in lines)]))
    monkeypatch.syspath_prepend(tmp_path)
    assert System().needed() == {
        "mlx": ">=0.32.2,<0.33", "mlx-lm": ">=0.32.2,<0.33", "huggingface-hub": ">=1.31",
        "numpy": "", "click": "",
    }  # fmt: skip


def test_what_akunu_takes_of_others_internals_is_pinned():
    """A new minor version of MLX or mlx-lm may move what is imported: it is tried first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [*project["dependencies"], *project["optional-dependencies"]["cuda"]]
    pins = [line.partition(";")[0] for line in listed if line.startswith("mlx")]
    assert len(pins) == 4
    assert all(",<0." in pin for pin in pins)


def test_a_mac_in_trouble():
    system = mac(sysctl__proc_translated=1)
    system.found = Device("cpu", "Apple M4", None)
    system.programs["pmset", "-g"] = "System-wide:\n lowpowermode         1\n"
    assert [severity for severity, _ in texts(system)] == ["error", "note"]
    assert "Rosetta" in texts(system)[0][1]
    assert "Low Power Mode" in texts(system)[1][1]
    untranslated = mac()
    untranslated.found = Device("cpu", "Apple M4", None)
    assert texts(untranslated) == [("warning", "MLX computes on the CPU although this is a Mac")]


def test_linux_with_the_blas_of_the_wheel():
    facts = read_facts(linux(found=OWN), "1", {})
    assert (facts.chip, facts.blas) == ("AMD EPYC 9", OWN.blas)
    ((severity, text),) = texts(linux(found=OWN), GOOD)
    assert severity == "note"
    assert text.endswith("exact and slow: AKUNU_BLAS is mlx")


def test_linux_with_openblas():
    ((finding),) = found(linux(found=FAST), GOOD)
    assert finding.severity == "note"
    assert "OpenBLAS 0.3.34" in finding.text
    assert "--reproducible or set AKUNU_BLAS=mlx" in finding.advice


def test_cuda():
    smi = {("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"): "NVIDIA H200\nNVIDIA L4\n"}
    unused = linux(programs=smi)
    assert read_facts(unused, "1", {}).nvidia == ("NVIDIA H200", "NVIDIA L4")
    ((severity, text),) = texts(unused)
    assert severity == "warning"
    assert "although there is a GPU: NVIDIA H200, NVIDIA L4" in text
    assert texts(linux(programs=smi, found=Device("cuda", "NVIDIA H200", None)), GOOD) == []
    both = {**VERSIONS, "mlx-cpu": "1.0", "mlx-cuda-13": "1.0"}
    ((severity, text),) = texts(linux(programs=smi, versions=both))
    assert "both installed" in text


def test_an_installation_that_is_not_whole():
    system = linux(found="libmlx.so: cannot open shared object file")
    del system.versions["mlx-lm"]
    assert texts(system) == [
        ("error", "MLX cannot be imported: libmlx.so: cannot open shared object file"),
        ("error", "the package mlx-lm is not installed"),
    ]
    assert [f.advice for f in found(system)][1] == "Run: pip install mlx-lm"


def test_folders():
    closed, other = FOLDERS.values()
    assert texts(linux(read_only={closed})) == [
        ("warning", f"{closed} (measured costs) cannot be written")
    ]
    full = [text for _, text in texts(linux(free=20_000_000))]
    assert full == [
        f"20 MB are free in {closed} (measured costs)", f"20 MB are free in {other} (settings)"
    ]  # fmt: skip
    assert texts(linux(free=2 * GB)) == []
    assert texts(linux(free=None)) == []


def test_the_self_test():
    assert texts(linux(), GOOD) == []
    ((severity, text),) = texts(linux(), "ConfigError: no model")
    assert severity == "error"
    assert "no model" in text
    different = replace(GOOD, different=2)
    exact = found(linux(), different)[0]
    assert (exact.severity, exact.text) == (
        "error", "drafting changed 2 of 6 replies of the default model"
    )  # fmt: skip
    assert "report" in exact.advice
    for row_bits in ("different", "unknown"):
        rounding = found(linux(), replace(GOOD, different=2, row_bits=row_bits))[0]
        assert rounding.severity == "warning"
        assert "--reproducible" in rounding.advice
    ((severity, text),) = texts(linux(), replace(GOOD, tokens_per_s=40.0))
    assert severity == "warning"
    assert "40 tokens/s, without 50" in text
    assert texts(linux(), replace(GOOD, tokens_per_s=46.0)) == []
    assert texts(linux(), replace(GOOD, tokens_per_s=None)) == []


def test_this_machine(tmp_path):
    system = System()
    assert system.output("sh", "-c", "echo hello") == "hello"
    assert system.output("sh", "-c", "exit 3") is None
    assert system.output("no-such-program-at-all") is None
    assert system.text(str(tmp_path / "missing")) is None
    assert system.version("mlx") is not None
    assert system.version("no-such-distribution") is None
    assert system.memory_bytes() > 2**28
    assert system.processors() >= 1
    assert system.free_bytes(tmp_path / "not" / "yet") > 0
    assert system.writable(tmp_path / "not" / "yet")
    file = tmp_path / "file"
    file.write_text("")
    assert not system.writable(file / "below")
    assert system.device().backend in ("metal", "cuda", "cpu")
    assert read_facts(system, "1", {"costs": tmp_path}).folders[0].writable
