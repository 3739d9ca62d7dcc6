"""Drafters of other projects, written from their published rules: what akunu's are held against."""

from collections.abc import Callable

from akunu_py.bench.replay.baseline import Baseline
from akunu_py.lab.baselines.ngram_cache import NgramCache
from akunu_py.lab.baselines.ngram_lookup import NgramLookup
from akunu_py.lab.baselines.ngram_mod import NgramMod
from akunu_py.lab.baselines.sam_decoding import SamDecoding
from akunu_py.lab.baselines.suffix_decoding import SuffixDecoding

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
"""What makes each baseline, by the name it has in reports."""

__all__ = ["BASELINES"]
