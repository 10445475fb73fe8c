"""Comparison of two runs: as text."""
