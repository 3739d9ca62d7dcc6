"""Count-based drafting: n-gram counts as a probability model, in memory or fitted to a corpus."""
