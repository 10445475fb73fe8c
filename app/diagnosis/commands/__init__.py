"""`coalmine reanchor` and `coalmine quality`."""
