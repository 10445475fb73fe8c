"""What is decided about live traffic, from values alone."""
