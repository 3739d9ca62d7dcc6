"""Drafting from counts: n-gram counts as a probability model, of a reply or of a corpus."""

from akunu_py.lab.counts.corpus_model import CorpusCounts, CorpusModel
from akunu_py.lab.counts.distribution import SparseDistribution
from akunu_py.lab.counts.drafter import CountDrafter, SampledCountDrafter
from akunu_py.lab.counts.fitting import CorpusCounter, fit_counts, id_pieces, text_pieces
from akunu_py.lab.counts.interpolation import CountModel
from akunu_py.lab.counts.model_file import load_counts, read_counts, save_counts
from akunu_py.lab.counts.ngram_model import NgramModel

__all__ = [
    "CorpusCounter",
    "CorpusCounts",
    "CorpusModel",
    "CountDrafter",
    "CountModel",
    "NgramModel",
    "SampledCountDrafter",
    "SparseDistribution",
    "fit_counts",
    "id_pieces",
    "load_counts",
    "read_counts",
    "save_counts",
    "text_pieces",
]
