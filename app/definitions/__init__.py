"""Defining things: suites, canaries, retrievers, checks, hooks and judges by API, pages, commands and canary files."""
