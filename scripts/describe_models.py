"""Print every architecture, its class, and how far it is from llama.cpp, for docs/models.md.

Runs each tiny random model of tests/tiny_architectures and compares it with the results of
llama.cpp recorded in tests/golden/architectures.
"""

import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from marked_pages import parser_of, print_or_write

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))


@dataclass
class Comparison:
    model: str
    difference: float
    same: int
    greedy: int
    joined: bool


def compare(name: str, folder: Path) -> Comparison:
    from tiny_architectures.builder import build

    from akunu_py import Engine
    from akunu_py.gguf import GGUFFile, read_plan

    path = build(name).write(folder / f"{name}.gguf")
    golden = np.load(ROOT / "tests" / "golden" / "architectures" / f"{name}.npz")
    with GGUFFile.open(path) as file:
        model = read_plan(file.metadata, file.tensors).model
    ids, greedy = golden["ids"].tolist(), golden["greedy"].tolist()
    with Engine.load(path, weights="dense", compute_type="float32") as engine:
        difference = np.abs(engine.logits(ids) - golden["logits"]).max() / golden["logits"].std()
        start = ids[:8]
        rows = engine.logits([*start, *greedy])[len(start) - 1 : -1]
        joined = engine.joined_passes() is not None
    same = int((rows.argmax(1) == greedy).sum())
    return Comparison(model, float(difference), same, len(greedy), joined)


def joined_word(joined: list[bool]) -> str:
    return "yes" if all(joined) else "in part" if any(joined) else "no"


def first_line(model: str) -> str:
    """What a variant adds, in its own words."""
    from akunu_py.models.variants import variant

    model_class, _ = variant(model.removeprefix("variants."))
    return str(model_class.__doc__).splitlines()[0].rstrip(".")


def table() -> str:
    from tiny_architectures.builder import BUILDERS

    from akunu_py.gguf import supported_architectures

    results: dict[str, list[tuple[str, Comparison]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for name, (architecture, _) in sorted(BUILDERS.items()):
            results[architecture].append((name, compare(name, Path(folder))))
    lines = [
        "| `general.architecture` | model class | tiny models compared | largest difference | greedy tokens equal | replies share passes |",
        "|---|---|---|---|---|---|",
    ]
    notes: dict[str, str] = {}
    for architecture in supported_architectures():
        found = results.get(architecture, [])
        if not found:
            lines.append(f"| {architecture} | | **unchecked** | | | |")
            continue
        classes = sorted({result.model for _, result in found})
        for model in classes:
            if model.startswith("variants."):
                notes[model] = first_line(model)
        shown = ", ".join(
            f"akunu's {model.removeprefix('variants.')}" if "." in model else model
            for model in classes
        )
        same, greedy = (sum(getattr(r, key) for _, r in found) for key in ("same", "greedy"))
        lines.append(
            f"| {architecture} | {shown} | {', '.join(name for name, _ in found)} "
            f"| {max(result.difference for _, result in found):.1e} | {same} of {greedy} "
            f"| {joined_word([result.joined for _, result in found])} |"
        )
    checked = sum(bool(results.get(name)) for name in supported_architectures())
    lines += ["", f"{checked} of {len(supported_architectures())} architectures are compared.", ""]
    lines += ["akunu's own classes are mlx-lm's with what these files need and those lack:", ""]
    lines += [
        f"- `{model.removeprefix('variants.')}`: {note}." for model, note in sorted(notes.items())
    ]
    return "\n".join(lines)


def main() -> None:
    options = parser_of(__doc__, "models.md").parse_args()
    print_or_write("models.md", "describe_models.py", table, write=options.write)


if __name__ == "__main__":
    main()
