"""Notifications and the hooks they go to: on pages."""
