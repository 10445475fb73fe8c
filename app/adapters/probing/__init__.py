"""Asking retrievers, and reading what they answer: over the network."""
