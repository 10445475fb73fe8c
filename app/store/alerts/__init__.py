"""Rules, alerts, incidents and silences: as rows."""
