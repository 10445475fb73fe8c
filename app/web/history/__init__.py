"""Pages of history: overview, checks, runs, canaries, badges."""
