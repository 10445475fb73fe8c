"""Two things held against each other: as text."""
