"""What is due, and what came of it: over REST."""
