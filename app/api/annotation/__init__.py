"""REST routes of annotation."""
