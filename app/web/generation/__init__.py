"""Pages of generated answers and of their judges."""
