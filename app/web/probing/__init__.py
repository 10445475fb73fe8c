"""Asking retrievers, and reading what they answer: on pages."""
