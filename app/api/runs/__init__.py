"""REST routes of re-scorings and event streams, and waiting for runs to end."""
