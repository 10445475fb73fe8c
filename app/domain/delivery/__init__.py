"""Notifications and the hooks they go to: decided without I/O."""
