"""Run the tiny models of tests/tiny_architectures with llama.cpp and keep what it computes.

    python scripts/record_llama_cpp.py [-v] [NAME ...]      all of them, without names

Needs llama-cpp-python (it builds llama.cpp from source) and gguf; run by hand when a tiny model is
new or has changed. Writes tests/golden/architectures/NAME.npz with
    ids     int32 [n]          the prompt
    logits  float32 [n, vocab] after each of its tokens, KV cache in float32
    greedy  int32 [64]         the likeliest tokens that follow the first eight of ids
    digest  of the model's metadata and weights
    version of llama-cpp-python
"""

import ctypes
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden" / "architectures"
PROMPT, GREEDY_PROMPT, GREEDY, CONTEXT = 24, 8, 64, 128


def run(path: Path, ids: list[int]):
    """Return llama.cpp's logits for ids and its greedy continuation of their beginning."""
    import llama_cpp

    parameters = llama_cpp.llama_model_default_params()
    parameters.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    if not model:
        raise RuntimeError(f"llama.cpp does not load {path.name}")

    def context():
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = CONTEXT, CONTEXT, CONTEXT
        options.n_threads = options.n_threads_batch = 1
        options.type_k = options.type_v = llama_cpp.GGML_TYPE_F32
        options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        options.swa_full = False
        made = llama_cpp.llama_init_from_model(model, options)
        if not made:
            raise RuntimeError(f"llama.cpp makes no context for {path.name}")
        return made

    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))

    def decode(state, tokens, start):
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, start + i, 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = 1
        if llama_cpp.llama_decode(state, batch):
            raise RuntimeError("llama_decode failed")
        rows = [
            np.ctypeslib.as_array(
                ctypes.cast(
                    llama_cpp.llama_get_logits_ith(state, i), ctypes.POINTER(ctypes.c_float)
                ),
                (vocabulary,),
            ).copy()
            for i in range(len(tokens))
        ]
        llama_cpp.llama_batch_free(batch)
        return np.stack(rows)

    state = context()
    logits = decode(state, ids, 0)
    llama_cpp.llama_free(state)
    state = context()
    start = ids[:GREEDY_PROMPT]
    token = int(decode(state, start, 0)[-1].argmax())
    greedy = [token]
    while len(greedy) < GREEDY:
        token = int(decode(state, [token], len(start) + len(greedy) - 1)[-1].argmax())
        greedy.append(token)
    llama_cpp.llama_free(state)
    llama_cpp.llama_model_free(model)
    return logits, greedy


def main() -> None:
    try:
        import llama_cpp
    except ImportError:
        sys.exit("this script needs llama-cpp-python: pip install llama-cpp-python")
    sys.path.insert(0, str(ROOT / "tests"))
    from tiny_architectures import BUILDERS
    from tiny_architectures.builder import VOCABULARY_SIZE, build

    names = [name for name in sys.argv[1:] if name != "-v"] or sorted(BUILDERS)
    if unknown := set(names) - set(BUILDERS):
        sys.exit(f"no tiny model is called {', '.join(sorted(unknown))}")
    verbose = "-v" in sys.argv
    # Kept in a name: llama.cpp calls it as long as the process lives.
    log = llama_cpp.llama_log_callback(
        lambda _, text, __: sys.stderr.write(text.decode()) if verbose else None
    )
    llama_cpp.llama_log_set(log, None)
    llama_cpp.llama_backend_init()
    GOLDEN.mkdir(parents=True, exist_ok=True)
    ids = np.random.default_rng(11).integers(0, VOCABULARY_SIZE - 6, PROMPT).tolist()
    failed = []
    for name in names:
        model = build(name)
        with tempfile.TemporaryDirectory() as folder:
            try:
                logits, greedy = run(model.write(Path(folder) / f"{name}.gguf"), ids)
            except RuntimeError as error:
                failed.append(name)
                print(f"{name}: {error}", file=sys.stderr)
                continue
        if not np.isfinite(logits).all():
            failed.append(name)
            print(f"{name}: logits are not finite", file=sys.stderr)
            continue
        np.savez_compressed(
            GOLDEN / f"{name}.npz",
            ids=np.array(ids, np.int32),
            logits=logits.astype(np.float32),
            greedy=np.array(greedy, np.int32),
            digest=model.digest(),
            version=llama_cpp.__version__,
        )
        print(f"{name}: std {logits.std():.3f}, {len(set(greedy))} different tokens of {GREEDY}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
