"""Rows and queries."""
