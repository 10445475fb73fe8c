"""Comparison of two runs: decided without I/O."""
