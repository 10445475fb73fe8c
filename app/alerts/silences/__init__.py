"""Silences: what is not told while they are on."""
