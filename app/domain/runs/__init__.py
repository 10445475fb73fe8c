"""What is due, and what came of it: decided without I/O."""
