"""llama.cpp by xllamacpp, on the same GGUF file: plain, and with each of its n-gram modes."""

import functools
import json
import re
from collections.abc import Callable, Sequence
from http.client import HTTPConnection
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from akunu_lab.compare.arm import EXTRA, ComparedModel, Program, Skipped, UnavailableError
from akunu_lab.install import install_command
from akunu_py.api import Arm, ContractError, DecodeStats, Item, MeasuredReply

PLAIN = "llama.cpp-plain"
MODES = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
"""Values of llama.cpp's option --spec-type that need no draft model."""


class LlamaCppArm:
    """Replies of llama.cpp's server in its process; `serve` starts one.

    Each reply gets a new server, since some modes remember earlier replies. Times and counts are
    llama.cpp's own, so they exclude HTTP and JSON.
    """

    plain = PLAIN
    steady = True

    def __init__(
        self,
        name: str,
        about: str,
        serve: Callable[[], Any],
        max_tokens: int,
        end_ids: frozenset[int],
    ) -> None:
        self.name = name
        self.version = f"xllamacpp {version('xllamacpp')}"
        self.about = about
        self._serve = serve
        self._max_tokens, self._end_ids = max_tokens, end_ids

    def forget(self) -> None:
        """Need nothing: a server makes one reply."""

    def reply(self, item: Item) -> MeasuredReply:
        """Continue a prompt; llama.cpp ends at the end ids that it knows.

        Raises ContractError if the server refuses the prompt, or continues after an end id.
        """
        server = self._serve()
        answer = _complete(server.listening_address, item.prompt, self._max_tokens)
        token_ids, timings = tuple(answer["tokens"]), answer["timings"]
        behind = next((token for token in token_ids[:-1] if token in self._end_ids), None)
        if behind is not None:
            raise ContractError(f"llama.cpp continued after token {behind}, which ends a reply")
        # A draft never exceeds the requested tokens, so all accepted ones are in the reply.
        num_accepted = timings.get("draft_n_accepted", 0)
        return MeasuredReply(
            token_ids=token_ids,
            num_first=1,
            first_s=timings["prompt_ms"] / 1e3,
            decode_s=timings["predicted_ms"] / 1e3,
            stats=DecodeStats(
                steps=len(token_ids) - num_accepted,
                drafted=timings.get("draft_n", 0),
                accepted=num_accepted,
                output_tokens=len(token_ids),
            ),
        )

    def close(self) -> None:
        """Do nothing: servers end with their replies."""


def _complete(address: str, prompt: Sequence[int], max_tokens: int) -> Any:
    """Return a server's answer to /completion; raises ContractError with its refusal.

    The whole prompt is fed, without cached rows of an earlier one.
    """
    request = {
        "prompt": prompt,
        "n_predict": max_tokens,
        "temperature": 0,
        "cache_prompt": False,
        "return_tokens": True,
    }
    connection = HTTPConnection(urlsplit(address).netloc)
    try:
        connection.request(
            "POST", "/completion", json.dumps(request), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    if response.status != 200:
        raise ContractError(f"llama.cpp refused the prompt: {text:.200}")
    return json.loads(text)


def make_arms(subject: ComparedModel) -> Sequence[Arm | Skipped]:
    """Return the plain arm and an arm for each mode, with llama.cpp's own settings.

    Raises UnavailableError if xllamacpp is not installed, or the model is not a file.
    """
    path = subject.path
    if not path.is_file():
        raise UnavailableError("it reads GGUF files, and the model is a folder; give its GGUF file")
    try:
        import xllamacpp  # an extra
    except ImportError as error:
        raise UnavailableError(f"xllamacpp is not installed: {install_command(EXTRA)}") from error

    def serve(mode: str = "none") -> Any:
        types = xllamacpp.common_speculative_type
        kind = f"COMMON_SPECULATIVE_TYPE_{mode.upper().replace('-', '_')}"
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_ctx = subject.longest + 64
        parameters.n_parallel = 1
        parameters.verbosity = 0
        parameters.ui = False
        parameters.fit_params = False
        # With it the server would keep the rows of replies.
        parameters.cache_ram_mib = 0
        if not subject.on_gpu:
            parameters.n_gpu_layers = 0
            parameters.cpuparams.n_threads = subject.num_threads
            parameters.cpuparams_batch.n_threads = subject.num_threads
        parameters.speculative.types = [getattr(types, kind)]
        return xllamacpp.Server(parameters)

    # Finds a model that llama.cpp cannot load now, not at every prompt. A server that is closed
    # before it answers anything may hang for ever.
    server = serve()
    _complete(server.listening_address, subject.probe, 1)
    del server
    where = "all layers on the GPU" if subject.on_gpu else f"{subject.num_threads} threads"
    built = ", ".join(re.findall(r"(\w+) = 1", xllamacpp.get_system_info()))
    about = f"the file's own weights, {where}, built with {built}"
    return [
        LlamaCppArm(
            f"llama.cpp-{name}", about, functools.partial(serve, mode), subject.max_tokens,
            subject.end_ids,
        )
        for name, mode in (("plain", "none"), *((mode, mode) for mode in MODES))
    ]  # fmt: skip


LLAMA_CPP = Program("llama.cpp", (PLAIN, *(f"llama.cpp-{mode}" for mode in MODES)), make_arms)
