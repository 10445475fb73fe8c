"""Asking retrievers: HTTP, SQL, MCP; presets, mapping, embedders, scorers, limits; try and wizard."""
