"""Rows: what should be (catalog), what is due (queue), what happened (history)."""
