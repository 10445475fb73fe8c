"""Explanations of results in sentences."""
