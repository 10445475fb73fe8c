"""Rules, alerts, incidents and silences: over REST."""
