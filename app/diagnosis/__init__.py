"""Why results changed: causes, renamed chunks, retrieval quality."""
