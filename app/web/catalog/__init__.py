"""Pages of definitions: suites, canaries, checks and imports."""
