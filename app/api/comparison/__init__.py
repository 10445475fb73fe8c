"""Comparison of two runs: over REST."""
