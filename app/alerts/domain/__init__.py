"""Alerts: rules, states, words, and how alerts are stored and shown."""
