"""Two things held against each other: fetched, decided and written."""
