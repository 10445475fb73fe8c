"""Rules, alerts, incidents and silences: on pages."""
