"""Drafting from counts: n-gram counts as a probability model, of a reply or of a corpus."""

from akunu_lab.counts.corpus_model import CorpusCounts, CorpusModel
from akunu_lab.counts.distribution import SparseDistribution
from akunu_lab.counts.drafter import CountDrafter, SampledCountDrafter
from akunu_lab.counts.fitting import CorpusCounter, fit_counts, id_pieces, text_pieces
from akunu_lab.counts.interpolation import CountModel
from akunu_lab.counts.model_file import load_counts, read_counts, save_counts
from akunu_lab.counts.ngram_model import NgramModel

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
