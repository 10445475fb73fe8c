"""Rules, alerts, incidents and silences: fetched, decided and written."""
