"""Silences and maintenance windows: which alerts nobody is notified of while they are on."""
