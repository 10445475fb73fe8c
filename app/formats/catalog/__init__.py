"""Documents of definitions: suites, canaries, retrievers, checks and hooks as YAML, JSON and other tools' files."""
