"""REST routes of history: runs, results, series, alerts and deliveries."""
