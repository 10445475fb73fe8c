"""Asking a retriever over HTTP and mapping what it answers."""
