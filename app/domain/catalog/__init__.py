"""What should be: suites, canaries, retrievers, checks, hooks, keys and secrets: decided without I/O."""
