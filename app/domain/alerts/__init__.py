"""Rules, alerts, incidents and silences: decided without I/O."""
