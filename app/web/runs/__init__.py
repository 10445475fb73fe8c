"""What is due, and what came of it: on pages."""
