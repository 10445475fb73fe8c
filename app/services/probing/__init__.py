"""Asking retrievers, and reading what they answer: fetched, decided and written."""
