"""REST routes of generated answers."""
