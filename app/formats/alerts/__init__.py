"""Rules, alerts, incidents and silences: as text."""
