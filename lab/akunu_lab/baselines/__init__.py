"""Baselines for `akunu bench replay`: drafters of other projects, by their published rules."""

from collections.abc import Callable

from akunu_lab.baselines.ngrams import NgramCache, NgramLookup, NgramMod
from akunu_lab.baselines.sam_decoding import SamDecoding
from akunu_lab.baselines.suffix_decoding import SuffixDecoding
from akunu_lab.replay.baseline import Baseline

BASELINES: dict[str, Callable[[], Baseline]] = {
    "hf-lookup-2": lambda: NgramLookup("hf-lookup-2", min_n=1, max_n=2, default_limit=10),
    "hf-lookup-3": lambda: NgramLookup("hf-lookup-3", min_n=1, max_n=3, default_limit=10),
    "vllm-ngram": lambda: NgramLookup("vllm-ngram", min_n=5, max_n=5, default_limit=5),
    "llama-ngram-cache": NgramCache,
    "llama-ngram-mod": NgramMod,
    "sam": SamDecoding,
    "suffix-24": lambda: SuffixDecoding("suffix-24", depth=24, default_limit=24),
    "suffix-64": lambda: SuffixDecoding("suffix-64", depth=64, default_limit=64),
}
"""Makers of the baselines, by their names in reports."""

__all__ = ["BASELINES"]
