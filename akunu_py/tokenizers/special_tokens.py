"""Tokens known by their text: ends of replies, and tokens for filling in code.

Converters name few of them in the metadata, so akunu finds them by text, as llama.cpp does. Source
of the lists: `llama-vocab.cpp` of llama.cpp (MIT). Unlike there, a token counts only if its type
sets it apart from text: in Qwen's vocabulary "</s>" is ordinary text.
"""

from collections.abc import Iterable, Mapping

# Every token with one of these texts ends a reply.
_END_TEXTS = frozenset(
    (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
        "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]",
        "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
        "<｜end▁of▁sentence｜>", "[e~[",
    )
)  # fmt: skip
_NAMES_THAT_END = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")

# Name -> texts; the first one that the vocabulary has is taken.
_DETECTED: Mapping[str, tuple[str, ...]] = {
    "eot": (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
        "<|end_of_text|>", "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
    ),
    "eom": ("<|eom_id|>",),
    "fim_pre": (
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
        "<|code_prefix|>", "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
        "<|code_suffix|>", "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
        "<|code_middle|>", "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}  # fmt: skip


def find_special_ids(marked: Mapping[str, int], named: Mapping[str, int]) -> dict[str, int]:
    """Return `named` with ids found by text: name ("eot", "fim_pre") -> id.

    `marked` has the text and id of each token whose type sets it apart from text.
    """
    ids = dict(named)
    for name, texts in _DETECTED.items():
        found = next((marked[text] for text in texts if text in marked), None)
        if name not in ids and found is not None:
            ids[name] = found
    return ids


def find_end_ids(marked: Mapping[str, int], special_ids: Mapping[str, int]) -> set[int]:
    """Return the ids that end a reply; arguments as `find_special_ids` takes and returns them."""
    ends = {special_ids[name] for name in _NAMES_THAT_END if name in special_ids}
    ends |= {id_ for text, id_ in marked.items() if text in _END_TEXTS}
    texts = {text for text, id_ in marked.items() if id_ in ends}
    calls = not texts.isdisjoint({"<|call|>", "<|calls|>"})
    if calls and not texts.isdisjoint({"<|return|>", "<|flush|>"}) and "<|end|>" in texts:
        # With these tokens <|end|> ends the analysis, not the reply (gpt-oss, Solar).
        ends.discard(marked["<|end|>"])
    if not texts.isdisjoint({"<|tool_response>", "<|plamo:eos|>"}) and "</s>" in texts:
        ends.discard(marked["</s>"])  # HTML, in Gemma 4 and PLaMo
    return ends


def fill_ids(special_ids: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    """Yield name, without "fim_", and id of each token for filling in code."""
    for name, id_ in special_ids.items():
        if name.startswith("fim_"):
            yield name.removeprefix("fim_"), id_
