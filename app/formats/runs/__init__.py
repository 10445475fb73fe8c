"""What is due, and what came of it: as text."""
