"""What llama.cpp makes of the prompts of tests/trained_prompts.py, by trained models.

Written to tests/golden/trained/MODEL.npz, for each prompt in turn, which is a conversation laid out by the model's
template or a raw text:
    ids, ids_sizes          uint16: its tokens
    replies                 uint16 [prompts, REPLY]: the likeliest tokens after it, none of which ends a reply
    margins                 float32 [prompts, REPLY]: by how much each was likelier than the next such one
    end_margins             float32 [prompts, REPLY]: by how much a token that ends a reply was likelier there
    top, top_logits         uint16, float32 [prompts, ROWS, TOP]: likeliest ids of the prompt's last rows
    columns, some_logits    int32, float32 [prompts, ROWS, COLUMNS]: logits of fixed ids there
    model, version          SHA-256 of the file; version of xllamacpp
Margins are differences of logits. Weights are expanded to float32, and the KV cache is in float32: so llama.cpp
computes in float32 throughout, and is as far from akunu as sums in another order are.
"""

import hashlib
import json
import tempfile
import urllib.request
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from trained_prompts import CONVERSATIONS, NEAR_TIE, prompts

from references import llama_cpp

REPLY, ROWS, TOP, COLUMNS, CONTEXT = 60, 4, 20, 20, 1024
IDS = ("ids", "ids_sizes", "replies", "top")


def expand(source: Path, target: Path) -> Path:
    """Write a GGUF file again with all its tensors in float32; return the target."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind = field.types[0]
            sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, sub)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def laid_out(path: Path, conversations: Sequence[list[dict[str, str]]]) -> list[str]:
    """Return conversations as llama.cpp's server lays them out by the template of a model."""
    import xllamacpp

    options = xllamacpp.CommonParams()
    options.model.path, options.n_ctx = str(path), 64
    options.hostnames, options.verbosity = ["127.0.0.1"], 0
    server = xllamacpp.Server(options)
    texts = []
    for messages in conversations:
        request = urllib.request.Request(  # noqa: S310 - its own address
            f"{server.listening_address}/apply-template",
            json.dumps({"messages": messages}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            texts.append(json.load(answer)["prompt"])
    return texts


def record(source: Path, out: Path, threads: int) -> None:
    """Record one model. Prints prompts whose replies rounding may change: they need other words."""
    conversations = CONVERSATIONS[source.stem]
    chats = iter(laid_out(source, list(conversations.values())))
    found = Recorded(list)
    with tempfile.TemporaryDirectory() as folder:
        model = llama_cpp.Model(expand(source, Path(folder) / "float32.gguf"))
        columns = np.linspace(0, model.size - 1, COLUMNS).astype(np.int32)
        ends = model.end_ids()
        with model.context(CONTEXT, threads) as context:
            for name, prompt in prompts(source.stem):
                if isinstance(prompt, str):
                    ids = model.encode(prompt, special=False, begin=True)
                else:
                    ids = model.encode(next(chats), special=True, begin=True)
                context.clear()
                rows = context.feed(ids)[-ROWS:]
                found.prompt(ids, rows, columns)
                margin = found.reply(context.greedy(rows[-1], REPLY, ends), ends)
                print(f"  {name}: {len(ids)} tokens, margins from {margin:.4f}", flush=True)
                if margin < NEAR_TIE:
                    print("    a near-tie: say it in other words")
        model.close()
    small = {name: np.array(found.pop(name), np.uint16) for name in IDS}
    np.savez_compressed(
        out,
        **small,
        **{name: np.array(rows) for name, rows in found.items()},
        columns=columns,
        model=hashlib.sha256(source.read_bytes()).hexdigest(),
        version=llama_cpp.VERSION,
    )


class Recorded(defaultdict[str, list[Any]]):
    """What is kept, prompt by prompt."""

    def prompt(self, ids: list[int], rows: np.ndarray, columns: np.ndarray) -> None:
        """Keep a prompt and the logits of its last rows."""
        top = np.argsort(-rows, axis=1)[:, :TOP]
        self["ids"] += ids
        self["ids_sizes"].append(len(ids))
        self["top"].append(top)
        self["top_logits"].append(np.take_along_axis(rows, top, axis=1))
        self["some_logits"].append(rows[:, columns])

    def reply(self, rows: np.ndarray, ends: list[int]) -> float:
        """Keep the choices that rows led to; return the smallest margin."""
        end_logits = rows[:, ends].max(axis=1)
        rows = rows.copy()
        rows[:, ends] = -np.inf
        best = np.sort(rows, axis=1)[:, -2:]
        self["replies"].append(rows.argmax(axis=1))
        self["margins"].append(best[:, 1] - best[:, 0])
        self["end_margins"].append(end_logits - best[:, 1])
        return min(self["margins"][-1].min(), np.abs(self["end_margins"][-1]).min())
