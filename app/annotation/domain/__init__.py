"""Values and decisions, pure."""
