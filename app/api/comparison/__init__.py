"""Two things held against each other: over REST."""
