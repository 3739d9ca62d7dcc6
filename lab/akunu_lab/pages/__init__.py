"""Pages of results: one to look at, one for a repository."""
