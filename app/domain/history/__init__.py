"""What was, as people read it: decided without I/O."""
