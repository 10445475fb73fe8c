"""Asking retrievers, and reading what they answer: decided without I/O."""
