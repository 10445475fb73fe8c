"""Two things held against each other: decided without I/O."""
