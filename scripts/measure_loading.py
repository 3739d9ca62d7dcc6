"""Load time and memory of GGUF models in the shapes of real ones, with random weights.

    python scripts/measure_loading.py [--folder DIR] [--runs 3] [SHAPE-TYPE ...]

Writes the models (once) into DIR, then opens each in fresh processes and prints, for each: the
file's size, the time to read its bytes once, the time akunu takes to have the weights ready
(`weights="quantized"`, float16 scales), the most anonymous memory over the file's size, and the
time to a llama.cpp server that is ready, with and without memory mapping, where xllamacpp is
installed (`pip install -e '.[compare]'`). The files are in the page cache in all cases.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]

# SmolLM 135M and Llama 3.2 1B.
SHAPES = {
    "135M": {"width": 576, "layers": 30, "heads": 9, "kv_heads": 3, "feed_forward": 1536, "vocabulary": 49152},
    "1B": {"width": 2048, "layers": 16, "heads": 32, "kv_heads": 8, "feed_forward": 8192, "vocabulary": 128256},
}  # fmt: skip
TYPES = ("Q4_K_M", "Q6_K", "Q8_0")
# Rows that are no multiple of 256 cannot hold K-quants; llama.cpp takes these instead.
FALLBACK = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}
# Places of float16 numbers in a block.
HALVES = {"Q4_K": (0, 2), "Q6_K": (208,), "Q8_0": (0,), "Q5_0": (0,)}


def tensors(shape: dict[str, int], kind: str) -> list[tuple[str, tuple[int, int], str]]:
    """Names, [rows, cols] and types as llama.cpp's quantizer chooses them."""
    width, wide = shape["width"], shape["feed_forward"]
    keys = width // shape["heads"] * shape["kv_heads"]
    base, better = ("Q4_K", "Q6_K") if kind == "Q4_K_M" else (kind, kind)
    found = [("token_embd.weight", (shape["vocabulary"], width), better)]
    for layer in range(shape["layers"]):
        # Q4_K_M: half of the value and down matrices are Q6_K, the outer eighths among them.
        eighth = shape["layers"] // 8
        more = layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2
        block, lifted = f"blk.{layer}.", better if more else base
        found += [
            (block + "attn_q.weight", (width, width), base),
            (block + "attn_k.weight", (keys, width), base),
            (block + "attn_v.weight", (keys, width), lifted),
            (block + "attn_output.weight", (width, width), base),
            (block + "ffn_gate.weight", (wide, width), base),
            (block + "ffn_up.weight", (wide, width), base),
            (block + "ffn_down.weight", (width, wide), lifted),
        ]
    return [
        (name, size, FALLBACK.get(type_, type_) if size[1] % 256 else type_)
        for name, size, type_ in found
    ]


def random_bytes(size: tuple[int, int], type_: str, random: np.random.Generator) -> np.ndarray:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    elements, nbytes = GGML_QUANT_SIZES[GGMLQuantizationType[type_]]
    raw = random.integers(0, 256, (size[0], size[1] // elements * nbytes), np.uint8)
    blocks = raw.reshape(-1, nbytes)
    for place in HALVES[type_]:
        scale = random.uniform(1e-4, 1e-3, len(blocks)).astype(np.float16)
        blocks[:, place : place + 2] = scale[:, None].view(np.uint8)
    return raw


def write(path: Path, shape: dict[str, int], kind: str) -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    import gguf
    from gguf_files import bpe_vocabulary

    # Through a temporary file: the largest is over a gigabyte.
    writer = gguf.GGUFWriter(str(path), "llama", use_temp_file=True)
    tokens, types, merges = bpe_vocabulary()
    more = shape["vocabulary"] - len(tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([*tokens, *(f"<unused_{index}>" for index in range(more))])
    writer.add_token_types([*types, *[int(gguf.TokenType.UNUSED)] * more])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index("<s>"))
    writer.add_eos_token_id(tokens.index("</s>"))
    writer.add_block_count(shape["layers"])
    writer.add_context_length(2048)
    writer.add_embedding_length(shape["width"])
    writer.add_feed_forward_length(shape["feed_forward"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape["width"] // shape["heads"])
    random = np.random.default_rng(0)
    norms = ["output_norm.weight"]
    for layer in range(shape["layers"]):
        norms += [f"blk.{layer}.attn_norm.weight", f"blk.{layer}.ffn_norm.weight"]
    for name in norms:
        writer.add_tensor(name, np.ones(shape["width"], np.float32))
    for name, size, type_ in tensors(shape, kind):
        writer.add_tensor(
            name, random_bytes(size, type_, random), raw_dtype=gguf.GGMLQuantizationType[type_]
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def anonymous_bytes() -> int:
    """Memory of this process that is no file's, on Linux."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("this script measures memory on Linux alone")


def load_once(path: str) -> None:
    """Print, as JSON, load time and peak memory of akunu; runs in a process of its own."""
    import mlx.core as mx

    from akunu_py.gguf import GGUFFile, read_plan
    from akunu_py.models.gguf_model import build_gguf_model
    from akunu_py.models.load import LoadOptions, load_model
    from akunu_py.models.load_steps import finish
    from akunu_py.models.weights import WeightReader

    before = peak = anonymous_bytes()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.001):
            peak = max(peak, anonymous_bytes())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    start = time.perf_counter()
    with GGUFFile.open(path) as file:
        plan = read_plan(file.metadata, file.tensors)
        model = finish(build_gguf_model(plan, WeightReader(file, mx.float16), context=None))
    weights_s = time.perf_counter() - start
    done.set()
    watcher.join()
    after = anonymous_bytes()
    del model
    start = time.perf_counter()
    load_model(path, LoadOptions(weights="quantized", compute_type="float16"))
    all_s = time.perf_counter() - start
    print(json.dumps({
        "weights_s": weights_s, "all_s": all_s, "peak": peak - before, "after": after - before,
    }))  # fmt: skip


def llama_cpp_once(path: str, way: str) -> None:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = path
    parameters.load_mode = getattr(xllamacpp.llama_load_mode, f"LLAMA_LOAD_MODE_{way.upper()}")
    parameters.n_ctx = 512
    parameters.n_gpu_layers = 0
    parameters.warmup = parameters.fit_params = parameters.ui = False
    parameters.verbosity = 0
    start = time.perf_counter()
    server = xllamacpp.Server(parameters)
    seconds = time.perf_counter() - start
    # A server that is closed without having answered may wait for itself for ever.
    server.handle_completions({"prompt": "x", "max_tokens": 1})
    print(json.dumps({"s": seconds}))


def in_process(*arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="such as 1B-Q6_K; all of them by default")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "akunu-models")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    names = arguments.models or [f"{shape}-{kind}" for shape in SHAPES for kind in TYPES]
    print(
        "| model | file MB | read once s | weights ready s | with tokenizer s | MB/s | peak / file | after / file | llama.cpp read s | mmap s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in names:
        shape, kind = name.split("-", 1)
        path = arguments.folder / f"{name}.gguf"
        if not path.exists():
            part = path.with_suffix(".part")
            write(part, SHAPES[shape], kind)
            part.rename(path)
        size = path.stat().st_size
        reads = []
        for _ in range(arguments.runs + 1):
            start = time.perf_counter()
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 22):
                    pass
            reads.append(time.perf_counter() - start)
        ours = [in_process("load-once", str(path)) for _ in range(arguments.runs)]
        theirs = []
        for way in ("none", "mmap"):
            if importlib.util.find_spec("xllamacpp") is None:
                theirs.append("not installed")
                continue
            runs = [
                in_process("llama-cpp-once", str(path), way)["s"] for _ in range(arguments.runs)
            ]
            theirs.append(f"{min(runs):.2f}")
        best = min(run["weights_s"] for run in ours)
        print(
            f"| {name} | {size / 1e6:.0f} | {min(reads):.2f} | {best:.2f} "
            f"| {min(run['all_s'] for run in ours):.2f} | {size / best / 1e6:.0f} "
            f"| {max(run['peak'] for run in ours) / size:.2f} "
            f"| {max(run['after'] for run in ours) / size:.2f} | {theirs[0]} | {theirs[1]} |",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["load-once"]:
        load_once(sys.argv[2])
    elif sys.argv[1:2] == ["llama-cpp-once"]:
        llama_cpp_once(sys.argv[2], sys.argv[3])
    else:
        main()
