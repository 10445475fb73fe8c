"""Requests to receivers of notifications, over the network."""
