"""akunu next to other programs: the same weights, the same token ids, in one interleaved run."""
