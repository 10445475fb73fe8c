"""REST routes of live traffic."""
