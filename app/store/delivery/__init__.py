"""Notifications and the hooks they go to: as rows."""
