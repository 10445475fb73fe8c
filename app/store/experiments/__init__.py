"""Rows of experiments: epochs, units, running totals."""
