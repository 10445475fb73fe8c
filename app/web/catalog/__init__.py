"""What should be: suites, canaries, retrievers, checks, hooks, keys and secrets: on pages."""
