"""Rows of definitions: suites, canaries, retrievers, checks, hooks, keys and secrets."""
