"""Trace files of replies, which `akunu bench replay` reads (docs/measuring.md)."""

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from akunu_py.system.errors import ConfigError
from akunu_py.system.regular_file import open_to_append
from akunu_py.values.decode_stats import StepDetail
from akunu_py.values.generation_config import SamplingConfig
from akunu_py.values.option_fields import options_of
from akunu_py.values.types import GenerationConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """One reply: prompt, output and options.

    `session` and `turn` belong to a conversation; they are None for a single reply. `steps` has the
    decoding steps of `token_ids`. `vocabulary` is the fingerprint of the tokenizer of all ids
    (`akunu_py.drafting.memory.vocabulary_fingerprint`).
    """

    category: str
    prompt: str
    output: str
    model: str
    decoding: str
    session: str | None = None
    turn: int | None = None
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    steps: tuple[StepDetail, ...] = ()
    vocabulary: str = ""

    def to_json(self) -> str:
        """Return the line, with a unique id."""
        record: dict[str, object] = {
            "id": uuid.uuid4().hex,
            "category": self.category,
            "prompt": self.prompt,
            "output": self.output,
            "model": self.model,
            "decoding": self.decoding,
        }
        if self.session is not None:
            record["session"] = self.session
            record["turn"] = self.turn or 0
        if self.token_ids:
            record["prompt_ids"] = list(self.prompt_ids)
            record["token_ids"] = list(self.token_ids)
            record["steps"] = [step.to_dict() for step in self.steps]
            if self.vocabulary:
                record["vocabulary"] = self.vocabulary
        return json.dumps(record, ensure_ascii=False)


def append_line(path: Path, line: TraceLine) -> None:
    """Append a line to a trace file, in one write.

    A new file is readable only for its owner. Lines of several processes do not mix. Raises
    ConfigError if the file cannot be written.
    """
    data = line.to_json().encode() + b"\n"
    try:
        handle = open_to_append(path)
        try:
            if os.write(handle, data) != len(data):
                # The rest could follow another process's line, so the next line starts anew.
                os.write(handle, b"\n")
                raise ConfigError(f"{path}: the disk is full; its last line is cut off")
        finally:
            os.close(handle)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def describe_decoding(config: GenerationConfig, seed: int) -> str:
    """Return the sampling in words, as in "temperature 0.7, top_p 0.9, seed 5"."""
    said = []
    for declared in options_of(SamplingConfig):
        if declared.name == "temperature" or declared.is_changed(config):
            value = getattr(config, declared.name)
            said.append(
                declared.name if isinstance(value, Mapping) else f"{declared.name} {value:g}"
            )
    if config.draft_sampling != "coupled":
        said.append(f"draft_sampling {config.draft_sampling}")
    if config.lenience < 1:
        said.append(f"lenience {config.lenience:g}")
    if not config.adjust_residual:
        said.append("residual not adjusted")
    if config.temperature:
        said.append(f"seed {seed}")
    if config.exactness == "none":
        said.append("not exact")
    return ", ".join(said)
