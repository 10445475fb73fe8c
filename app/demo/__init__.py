"""A small real retriever over a bundled corpus, with a switch to break it."""
