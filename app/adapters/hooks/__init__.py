"""Telling people: one module a hook kind."""
