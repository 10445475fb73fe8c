"""Alerts and incidents: as rows."""
