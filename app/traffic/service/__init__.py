"""Fetch, decide, write: one transaction a function."""
