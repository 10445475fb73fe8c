"""What was, as people read it: on pages."""
