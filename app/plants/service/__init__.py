"""Services of plants: carried on step by step, and shown."""
