"""Asking retrievers, and reading what they answer: as text."""
