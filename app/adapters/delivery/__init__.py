"""Notifications and the hooks they go to: over the network."""
