"""What was, as people read it: as rows."""
