"""Queries of users: intake, reach, suggestions, segments."""
