#!/usr/bin/env python3
"""Measure how long programs take to start: whole processes that make one token, in turns.

    python scripts/measure_start.py model.gguf [--rounds 15] [--keep FOLDER]

akunu is compared with mlx-lm's own command on the converted model, which FOLDER keeps, and with
llama.cpp by xllamacpp. Off a Mac the converted model is dense, in float32, as akunu loads small ones
there: MLX's CPU backend is slow with quantized weights. Files are in the page cache; a round before the others is not counted. A
ratio is the median over rounds, with a 95 % interval from resampled rounds.
"""

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from akunu_py.bench.bootstrap import Ratio

PROMPT = "def add(a, b):"
AKUNU = "akunu"

LLAMA_CPP = """
import sys, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.n_ctx = 512
parameters.n_gpu_layers = int(sys.argv[3])
parameters.verbosity = 0
parameters.warmup = parameters.fit_params = parameters.ui = False
server = xllamacpp.Server(parameters)
reply = server.handle_completions({"prompt": sys.argv[2], "max_tokens": 1, "temperature": 0})
print(reply["choices"][0]["text"])
"""


def commands(model: Path, folder: Path) -> dict[str, list[str]]:
    """Return each program's command; one that is missing is named in a line."""
    python = [sys.executable, "-m"]
    ask = ["--prompt", PROMPT, "--max-tokens", "1"]
    found = {AKUNU: [*python, "akunu_py", "--quiet", "generate", str(model), "--raw", *ask]}
    if not folder.exists():
        convert(model, folder)
    mlx_lm = [*python, "mlx_lm", "generate", "--model", str(folder), "--ignore-chat-template"]
    found["mlx-lm"] = [*mlx_lm, *ask]
    if importlib.util.find_spec("xllamacpp") is None:
        missing = "xllamacpp is not installed: pip install xllamacpp"
        print(f"llama.cpp is left out, {missing}", file=sys.stderr)
    else:
        layers = "999" if sys.platform == "darwin" else "0"
        found["llama.cpp"] = [sys.executable, "-c", LLAMA_CPP, str(model), PROMPT, layers]
    return found


def convert(model: Path, folder: Path, packed: Path | None = None) -> None:
    """Write the model as a folder for mlx-lm; off a Mac dense, and `packed` as in the file."""
    akunu = [sys.executable, "-m", "akunu_py", "--quiet", "models", "convert", str(model)]
    if sys.platform == "darwin":
        seconds([*akunu, str(folder)])
        return
    with tempfile.TemporaryDirectory() as temporary:
        quantized = str(packed or Path(temporary) / "quantized")
        seconds([*akunu, quantized, "--compute-type", "float32"])
        dense = ["--hf-path", quantized, "--mlx-path", str(folder), "--dequantize"]
        seconds([sys.executable, "-m", "mlx_lm", "convert", *dense, "--dtype", "float32"])


def seconds(command: Sequence[str]) -> float:
    """Return how long a process takes; ends the script with its last words where it fails."""
    started = time.perf_counter()
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    took = time.perf_counter() - started
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["it printed nothing"]
        sys.exit(f"{' '.join(command[:6])} ended with {done.returncode}: {words[-1]}")
    return took


def lines(rounds: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the table: a line a program, with akunu's speed over its own."""
    table = [
        "| program | median s | fastest s | slowest s | its time / akunu's | 95 % |",
        "|---|---|---|---|---|---|",
    ]
    for name in rounds[0]:
        times = [entry[name] for entry in rounds]
        cells = ["", ""]
        if name != AKUNU:
            # One reply each: its seconds over akunu's are akunu's speed over its own.
            pairs = [
                (str(number), 1, entry[name], 1, entry[AKUNU])
                for number, entry in enumerate(rounds)
            ]
            found = Ratio.of(pairs, median=True)
            cells = ["" if found.ratio is None else f"{found.ratio:.2f}", found.range_text(".2f")]
        shown = [f"{value:.2f}" for value in (median(times), min(times), max(times))]
        table.append(f"| {' | '.join([name, *shown, *cells])} |")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="the converted model, made once"
    )
    arguments = parser.parse_args()
    if not arguments.model.is_file():
        parser.error(f"{arguments.model} is not a file; give a GGUF file")
    if arguments.rounds < 1:
        parser.error(f"--rounds is {arguments.rounds}; give 1 or more")
    with tempfile.TemporaryDirectory() as temporary:
        found = commands(arguments.model, arguments.keep or Path(temporary) / "mlx")
        for command in found.values():
            seconds(command)
        rounds = []
        for number in range(arguments.rounds):
            turn = number % len(found)
            order = [*found][turn:] + [*found][:turn]
            times = {name: seconds(found[name]) for name in order}
            rounds.append({name: times[name] for name in found})
    print("\n".join(lines(rounds)))


if __name__ == "__main__":
    main()
