"""llama.cpp by llama-cpp-python, on the same GGUF file: plain, and with its prompt lookup."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from akunu_py.bench.compare.arm import (
    INSTALL,
    Arm,
    Program,
    Recorder,
    Skipped,
    Subject,
    UnavailableError,
)

PLAIN = "llama.cpp-plain"
_LOOKUP = "llama.cpp-lookup"


class _Counted:
    """A draft model of llama-cpp-python's that counts: it is asked once before each pass."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.asked = 0
        self.num_drafted = 0

    def __call__(self, input_ids: Any, /, **options: Any) -> Any:
        """Return what the draft model drafts."""
        drafted = self._inner(input_ids, **options)
        self.asked += 1
        self.num_drafted = len(drafted)
        return drafted


class LlamaCppArm:
    """Replies of a `llama_cpp.Llama`; `lookup` is its draft model, None for plain decoding."""

    plain = PLAIN
    steady = True

    def __init__(self, name: str, about: str, llama: Any, lookup: _Counted | None = None) -> None:
        self.name = name
        self.version = f"llama-cpp-python {version('llama-cpp-python')}"
        self.about = about
        self._llama = llama
        self._lookup = lookup

    def decode(self, prompt: tuple[int, ...], recorder: Recorder) -> None:
        """Continue a prompt; see the protocol."""
        # It keeps the last prompt's rows otherwise.
        self._llama.reset()
        lookup = self._lookup
        asked = 0 if lookup is None else lookup.asked
        recorder.start()
        tokens = self._llama.generate(list(prompt), temp=0.0, repeat_penalty=1.0)
        for token in tokens:
            if lookup is None:
                over = recorder.take((token,))
            elif lookup.asked != asked:
                asked = lookup.asked
                over = recorder.take((token,), num_drafted=lookup.num_drafted)
            else:
                # A pass goes on as long as its tokens are the drafted ones.
                over = recorder.take((token,), num_accepted=1, new_pass=False)
            if over:
                break
        tokens.close()

    def close(self) -> None:
        """Free the model."""
        self._llama.close()


def make_arms(subject: Subject) -> Sequence[Arm | Skipped]:
    """Return both arms; each has a context of its own over the mapped file.

    Raises UnavailableError where llama-cpp-python is not installed, or the model is no file.
    """
    path = subject.loaded.description.path
    if not path.is_file():
        raise UnavailableError("it reads GGUF files, and the model is a folder; give its GGUF file")
    try:
        import llama_cpp  # noqa: PLC0415 - an extra
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding  # noqa: PLC0415
    except ImportError as error:
        raise UnavailableError(f"llama-cpp-python is not installed: {INSTALL}") from error
    drafted = 10 if subject.num_draft_tokens is None else subject.num_draft_tokens
    threads = None if subject.on_gpu else subject.num_threads
    options: dict[str, Any] = {
        "model_path": str(path),
        "n_ctx": subject.longest + 64,
        "n_gpu_layers": -1 if subject.on_gpu else 0,
        "n_threads": threads,
        "n_threads_batch": threads,
        "verbose": False,
    }
    where = "all layers on the GPU" if subject.on_gpu else f"{threads} threads"
    about = f"the file's own weights, {where}"
    arms: list[Arm | Skipped] = [LlamaCppArm(PLAIN, about, llama_cpp.Llama(**options))]
    if drafted == 0:
        return [*arms, Skipped(_LOOKUP, "it drafts at least one token")]
    lookup = _Counted(LlamaPromptLookupDecoding(num_pred_tokens=drafted))
    # Without logits_all 0.3 reserves room for the logits of one batch, and fails beyond it.
    llama = llama_cpp.Llama(**options, draft_model=lookup, logits_all=True)
    return [*arms, LlamaCppArm(_LOOKUP, f"{about}, up to {drafted} drafted", llama, lookup)]


LLAMA_CPP = Program("llama.cpp", (PLAIN, _LOOKUP), make_arms)
