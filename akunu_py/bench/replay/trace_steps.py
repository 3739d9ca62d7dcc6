"""The optional part of a trace line: token ids, and how each step came to them.

A replay has no use for the steps, but a file that contradicts itself is not worth replaying: they
must put the token ids together, and each number must be what it says it is.
"""

import math
from collections.abc import Mapping
from typing import Any

FIELDS = ("prompt_ids", "token_ids", "steps")

_STEP_NEEDS = {
    "position",
    "source",
    "match_length",
    "drafted",
    "accepted",
    "token",
    "kind",
    "origin",
}
_STEP_MAY = {"entropy", "gamma", "tree"}
_TREE_NEEDS = {"nodes", "verified", "reason", "kept", "whole"}
_PART_MAY = {"tokens", "cost"}
_TOKEN_NEEDS = {"token", "parent"}
_TOKEN_MAY = {"accepted", "confidence", "p", "q", "uniform", "source"}
_WORDS = {"kind": ("bonus", "recovered"), "origin": ("target", "residual")}
_TREE_WORDS = {
    "verified": ("tree", "chain", "nothing"),
    "reason": ("gain", "probe", "target", "all"),
}


class FieldError(Exception):
    """What is wrong with a field; the line is known further up."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def check_ids(record: Mapping[str, Any]) -> None:
    """Check the fields `prompt_ids`, `token_ids` and `steps` of a line, where it has them.

    Raises FieldError for ids that are none, steps without token ids or prompt ids, fields too many
    or too few, numbers out of range, and steps that do not put the token ids together.
    """
    for field in ("prompt_ids", "token_ids"):
        if field in record:
            value = record[field]
            if not isinstance(value, list) or not value:
                raise FieldError(field, f"{value!r:.60} is no list of token ids")
            for token in value:
                _check_whole(field, token, 0)
    if "steps" not in record:
        return
    if "token_ids" not in record or "prompt_ids" not in record:
        raise FieldError("steps", "needs token_ids and prompt_ids to be steps of")
    if not isinstance(record["steps"], list):
        raise FieldError("steps", f"{record['steps']!r:.60} is no list")
    ids: list[int] = []
    wanted = record["token_ids"]
    for number, step in enumerate(record["steps"]):
        name = f"steps[{number}]"
        accepted = _check_step(name, step)
        if len(ids) >= len(wanted):
            raise FieldError(name, "comes after the last of the token ids")
        if step["position"] != len(record["prompt_ids"]) + len(ids):
            raise FieldError(
                f"{name}.position",
                f"is {step['position']}; the tokens before it are "
                f"{len(record['prompt_ids']) + len(ids)}",
            )
        ids += (*accepted, step["token"])
    # What a stop text or an end-of-generation id cut off the last step is not part of the reply.
    if ids[: len(wanted)] != wanted:
        raise FieldError("steps", "do not put token_ids together")


def _check_step(name: str, step: Any) -> list[int]:
    """Check a step by itself; return the tokens it accepted."""
    _check_fields(name, step, _STEP_NEEDS, _STEP_MAY)
    for field in ("position", "match_length", "accepted", "token", "gamma"):
        if field in step:
            _check_whole(f"{name}.{field}", step[field], 0)
    if not isinstance(step["source"], str):
        raise FieldError(f"{name}.source", f"{step['source']!r:.60} is no text")
    _check_words(name, step, _WORDS)
    if "entropy" in step:
        _check_share(f"{name}.entropy", step["entropy"])
    if not isinstance(step["drafted"], list):
        raise FieldError(f"{name}.drafted", f"{step['drafted']!r:.60} is no list")
    if "tree" in step:
        _check_tree(f"{name}.tree", step["tree"], len(step["drafted"]))
    accepted: list[int] = []
    last = -1
    for place, token in enumerate(step["drafted"]):
        _check_token(f"{name}.drafted[{place}]", token, place)
        if token.get("accepted"):
            if token["parent"] != last:
                raise FieldError(
                    f"{name}.drafted[{place}].accepted", "is true of a token that is on no path"
                )
            accepted.append(token["token"])
            last = place
    if step["accepted"] != len(accepted):
        raise FieldError(
            f"{name}.accepted", f"is {step['accepted']} where {len(accepted)} tokens are accepted"
        )
    return accepted


def _check_token(name: str, token: Any, place: int) -> None:
    _check_fields(name, token, _TOKEN_NEEDS, _TOKEN_MAY)
    _check_whole(f"{name}.token", token["token"], 0)
    _check_whole(f"{name}.parent", token["parent"], -1)
    if token["parent"] >= place:
        raise FieldError(f"{name}.parent", f"is {token['parent']}; parents come first")
    if "accepted" in token and not isinstance(token["accepted"], bool):
        raise FieldError(f"{name}.accepted", f"{token['accepted']!r:.60} is neither true nor false")
    if not isinstance(token.get("source", ""), str):
        raise FieldError(f"{name}.source", f"{token['source']!r:.60} is no text")
    for field in ("confidence", "p", "q", "uniform"):
        if field in token:
            _check_share(f"{name}.{field}", token[field])


def _check_tree(name: str, tree: Any, num_drafted: int) -> None:
    _check_fields(name, tree, _TREE_NEEDS, {"rate"})
    _check_words(name, tree, _TREE_WORDS)
    _check_whole(f"{name}.nodes", tree["nodes"], 1)
    if "rate" in tree:
        _check_number(f"{name}.rate", tree["rate"])
    for field, nodes in (("kept", num_drafted), ("whole", tree["nodes"])):
        part = tree[field]
        _check_fields(f"{name}.{field}", part, {"nodes"}, _PART_MAY)
        if part["nodes"] != nodes:
            raise FieldError(f"{name}.{field}.nodes", f"is {part['nodes']!r:.20} and not {nodes}")
        for value in sorted(_PART_MAY & part.keys()):
            _check_number(f"{name}.{field}.{value}", part[value])


def _check_words(name: str, value: Any, known: Mapping[str, tuple[str, ...]]) -> None:
    for field, words in known.items():
        if value[field] not in words:
            raise FieldError(
                f"{name}.{field}", f"{value[field]!r:.60} is neither {' nor '.join(words)}"
            )


def _check_fields(name: str, value: Any, needs: set[str], may: set[str]) -> None:
    if not isinstance(value, dict):
        raise FieldError(name, f"{value!r:.60} is no JSON object")
    for field in sorted(needs - value.keys()):
        raise FieldError(f"{name}.{field}", "missing")
    for field in sorted(value.keys() - needs - may):
        raise FieldError(f"{name}.{field}", "not a field of it; leave it out")


def _check_whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise FieldError(name, f"{value!r:.60} is no whole number from {least} on")


def _check_share(name: str, value: Any) -> None:
    # Sums of float32 may lie a little above 1.
    if not _is_number(value) or not 0 <= value <= 1 + 1e-5:
        raise FieldError(name, f"{value!r:.60} is no number from 0 to 1")


def _check_number(name: str, value: Any) -> None:
    if not _is_number(value):
        raise FieldError(name, f"{value!r:.60} is no number")


def _is_number(value: Any) -> bool:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and math.isfinite(value)
