"""Pages of live traffic."""
