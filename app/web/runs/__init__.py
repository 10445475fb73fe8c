"""Pages of running and re-scoring checks."""
