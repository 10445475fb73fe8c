"""REST routes of definitions: suites, canaries, retrievers, checks, hooks, import and export."""
