"""Comparison of two runs: fetched and computed."""
