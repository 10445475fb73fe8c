"""What was, as people read it: over REST."""
