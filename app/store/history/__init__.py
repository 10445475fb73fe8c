"""Rows of history: states, series, summaries, metrics, and pruning."""
