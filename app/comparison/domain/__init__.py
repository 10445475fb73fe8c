"""Comparison of two runs: estimates of differences, which of them are claimed, and the sentences that say so."""
