"""Definitions: suites, canaries, retrievers, checks, hooks, keys and secrets; without I/O."""
