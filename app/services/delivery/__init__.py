"""Notifications and the hooks they go to: fetched, decided and written."""
